// Protobuf's wire format without protobuf: what formats/ needs to read and write a few messages in
// the files of other programs.
//
//   message = field*
//   field   = (number << 3 | type) as a varint, then by type:
//             0: a varint; 1: 8 bytes; 2: a length as a varint and that many bytes; 5: 4 bytes
//
// Numbers of 4 and 8 bytes are little-endian (formats/little_endian.h). Groups (types 3 and 4) are
// obsolete and refused. Source: protobuf's "Encoding" (protobuf.dev/programming-guides/encoding).
// All functions are pure. Only numbers are copied.
//
//   absl::Status Read(const ProtobufRecord& record, Event& event) {
//     return ForEachField(record, record.bytes, [&](const ProtobufField& field) {
//       if (field.Is(2, ProtobufType::kVarint)) event.step = static_cast<int64_t>(field.varint);
//       return absl::OkStatus();  // unknown fields are skipped
//     });
//   }
#ifndef DIVVY_FORMATS_PROTOBUF_FIELDS_H_
#define DIVVY_FORMATS_PROTOBUF_FIELDS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"

namespace divvy {

enum class ProtobufType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// One field of a message. Borrows the record's memory.
struct ProtobufField {
  uint64_t number = 0;
  ProtobufType type = ProtobufType::kVarint;
  uint64_t varint = 0;      // the value of a kVarint
  absl::string_view bytes;  // the bytes of every other type

  bool Is(uint64_t wanted_number, ProtobufType wanted_type) const {
    return number == wanted_number && type == wanted_type;
  }
};

// A record that is one message. Error messages use `kind`, the expected type of message ("a
// tf.train.Example"), and count offsets from the beginning of `bytes`.
struct ProtobufRecord {
  absl::string_view kind;
  absl::string_view bytes;
};

// Reads the fields of one message, which is a part of `record`. Borrows its memory. Errors are
// DataLoss, "not <kind>: offset <in the record>: ...".
class ProtobufReader {
 public:
  ProtobufReader(const ProtobufRecord& record, absl::string_view message)
      : record_(record), rest_(message) {}

  // The next field. nullopt: the end of the message.
  absl::StatusOr<std::optional<ProtobufField>> Next() {
    if (rest_.empty()) return std::nullopt;
    DIVVY_ASSIGN_OR_RETURN(const uint64_t tag, Varint());
    ProtobufField field;
    field.number = tag >> 3;
    field.type = static_cast<ProtobufType>(tag & 7);
    switch (field.type) {
      case ProtobufType::kVarint: {
        DIVVY_ASSIGN_OR_RETURN(field.varint, Varint());
        return field;
      }
      case ProtobufType::kFixed64: return WithBytes(field, 8);
      case ProtobufType::kFixed32: return WithBytes(field, 4);
      case ProtobufType::kBytes: {
        DIVVY_ASSIGN_OR_RETURN(const uint64_t length, Varint());
        return WithBytes(field, length);
      }
    }
    return ErrorOfType(static_cast<int>(tag & 7));
  }

  // The next number of a packed list. DataLoss: none is left, or it has more than 10 bytes.
  absl::StatusOr<uint64_t> Varint() {
    constexpr int kMostBits = 64;
    uint64_t value = 0;
    for (int shift = 0; shift < kMostBits; shift += 7) {
      if (rest_.empty()) return Error("a number is cut off");
      const uint8_t byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    return Error("a number of more than 10 bytes");
  }

  bool done() const { return rest_.empty(); }
  absl::string_view rest() const { return rest_; }
  // DataLoss with the message `what` and the reader's present offset.
  absl::Status Error(absl::string_view what) const;

 private:
  absl::StatusOr<std::optional<ProtobufField>> WithBytes(ProtobufField field, uint64_t length) {
    if (length > rest_.size()) return ErrorOfLength(length);
    field.bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return field;
  }
  absl::Status ErrorOfType(int type) const;
  absl::Status ErrorOfLength(uint64_t length) const;

  const ProtobufRecord record_;
  absl::string_view rest_;
};

// Calls `visit(field)`, which returns a Status, for each field of the message. Stops at the first
// error and returns it.
template <typename Visit>
absl::Status ForEachField(const ProtobufRecord& record, absl::string_view message,
                          const Visit& visit) {
  ProtobufReader reader(record, message);
  while (true) {
    DIVVY_ASSIGN_OR_RETURN(const std::optional<ProtobufField> field, reader.Next());
    if (!field) return absl::OkStatus();
    DIVVY_RETURN_IF_ERROR(visit(*field));
  }
}

// Append a field, or a number without a field, to `out`. A negative int64 is written as its uint64,
// in 10 bytes.
void AppendVarint(uint64_t value, std::string& out);
void AppendVarintField(int number, uint64_t value, std::string& out);
void AppendDoubleField(int number, double value, std::string& out);
void AppendFixed32Field(int number, uint32_t value, std::string& out);
void AppendBytesField(int number, absl::string_view bytes, std::string& out);

}  // namespace divvy

#endif  // DIVVY_FORMATS_PROTOBUF_FIELDS_H_
