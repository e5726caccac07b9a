#include "formats/example.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

using Features = std::map<absl::string_view, ExampleValues>;

// ---- the wire format

enum class WireType : uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Field {
  uint64_t number = 0;
  WireType type = WireType::kVarint;
  uint64_t varint = 0;      // of kVarint
  absl::string_view bytes;  // of the others, as they stand
};

// The fields of one message, which is a part of `record`.
class FieldReader {
 public:
  FieldReader(absl::string_view record, absl::string_view message) : record_(record), rest_(message) {}

  // nullopt: no more.
  absl::StatusOr<std::optional<Field>> Next() {
    if (rest_.empty()) return std::nullopt;
    ASSIGN_OR_RETURN(const uint64_t tag, Varint());
    Field field;
    field.number = tag >> 3;
    field.type = static_cast<WireType>(tag & 7);
    switch (field.type) {
      case WireType::kVarint: {
        ASSIGN_OR_RETURN(field.varint, Varint());
        return field;
      }
      case WireType::kFixed64: return WithBytes(field, 8);
      case WireType::kFixed32: return WithBytes(field, 4);
      case WireType::kBytes: {
        ASSIGN_OR_RETURN(const uint64_t length, Varint());
        return WithBytes(field, length);
      }
    }
    return Error(absl::StrCat("a field of wire type ", tag & 7, ", which an Example never has"));
  }

  bool done() const { return rest_.empty(); }

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

  absl::Status Error(absl::string_view what) const {
    return absl::DataLossError(absl::StrCat("not a tf.train.Example: offset ", rest_.data() - record_.data(), ": ", what));
  }

 private:
  absl::StatusOr<std::optional<Field>> WithBytes(Field field, uint64_t length) {
    if (length > rest_.size()) return Error(absl::StrCat("a field of ", length, " bytes, of which ", rest_.size(), " are there"));
    field.bytes = rest_.substr(0, length);
    rest_.remove_prefix(length);
    return field;
  }

  absl::string_view record_;
  absl::string_view rest_;
};

// Calls `visit(field)` for each field of the message. The first error ends it.
template <typename Visit>
absl::Status ForEachField(absl::string_view record, absl::string_view message, const Visit& visit) {
  FieldReader reader(record, message);
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<Field> field, reader.Next());
    if (!field) return absl::OkStatus();
    RETURN_IF_ERROR(visit(*field));
  }
}

// ---- an Example's messages

float FloatFrom(absl::string_view bytes) {
  uint32_t bits = 0;
  for (int i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

absl::Status ReadPackedFloats(absl::string_view record, absl::string_view bytes, std::vector<float>& values) {
  if (bytes.size() % 4 != 0) return FieldReader(record, bytes).Error(absl::StrCat("packed floats of ", bytes.size(), " bytes, not a multiple of 4"));
  values.reserve(values.size() + bytes.size() / 4);
  for (; !bytes.empty(); bytes.remove_prefix(4)) values.push_back(FloatFrom(bytes));
  return absl::OkStatus();
}

absl::Status ReadPackedInts(absl::string_view record, absl::string_view bytes, std::vector<int64_t>& values) {
  FieldReader reader(record, bytes);
  while (!reader.done()) {
    ASSIGN_OR_RETURN(const uint64_t value, reader.Varint());
    values.push_back(static_cast<int64_t>(value));
  }
  return absl::OkStatus();
}

// Adds the values of one field of a list.
absl::Status ReadValues(absl::string_view, const Field& field, std::vector<absl::string_view>& values) {
  if (field.type == WireType::kBytes) values.push_back(field.bytes);
  return absl::OkStatus();
}
absl::Status ReadValues(absl::string_view record, const Field& field, std::vector<float>& values) {
  if (field.type == WireType::kBytes) return ReadPackedFloats(record, field.bytes, values);
  if (field.type == WireType::kFixed32) values.push_back(FloatFrom(field.bytes));
  return absl::OkStatus();
}
absl::Status ReadValues(absl::string_view record, const Field& field, std::vector<int64_t>& values) {
  if (field.type == WireType::kBytes) return ReadPackedInts(record, field.bytes, values);
  if (field.type == WireType::kVarint) values.push_back(static_cast<int64_t>(field.varint));
  return absl::OkStatus();
}

// A list of T's: what `values` had of another type is gone, of the same it goes on.
template <typename T>
absl::Status ReadList(absl::string_view record, absl::string_view message, ExampleValues& values) {
  if (!std::holds_alternative<std::vector<T>>(values)) values = std::vector<T>();
  auto& list = std::get<std::vector<T>>(values);
  return ForEachField(record, message, [&](const Field& field) { return field.number == 1 ? ReadValues(record, field, list) : absl::OkStatus(); });
}

absl::Status ReadFeature(absl::string_view record, absl::string_view message, ExampleValues& values) {
  return ForEachField(record, message, [&](const Field& field) {
    if (field.type != WireType::kBytes) return absl::OkStatus();
    switch (field.number) {
      case 1: return ReadList<absl::string_view>(record, field.bytes, values);
      case 2: return ReadList<float>(record, field.bytes, values);
      case 3: return ReadList<int64_t>(record, field.bytes, values);
      default: return absl::OkStatus();
    }
  });
}

absl::Status ReadEntry(absl::string_view record, absl::string_view message, Features& features) {
  absl::string_view name;
  ExampleValues values;
  RETURN_IF_ERROR(ForEachField(record, message, [&](const Field& field) {
    if (field.type != WireType::kBytes) return absl::OkStatus();
    if (field.number == 1) name = field.bytes;
    return field.number == 2 ? ReadFeature(record, field.bytes, values) : absl::OkStatus();
  }));
  features[name] = std::move(values);
  return absl::OkStatus();
}

// ---- writing

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void AppendBytesField(int number, absl::string_view bytes, std::string& out) {
  AppendVarint(static_cast<uint64_t>(number) << 3 | static_cast<uint64_t>(WireType::kBytes), out);
  AppendVarint(bytes.size(), out);
  out.append(bytes.data(), bytes.size());
}

struct FeatureWriter {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const std::vector<absl::string_view>& values) const {
    std::string list;
    for (absl::string_view value : values) AppendBytesField(1, value, list);
    return Feature(1, list);
  }
  std::string operator()(const std::vector<float>& values) const {
    std::string packed;
    for (float value : values) {
      uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      for (int i = 0; i < 4; ++i) packed.push_back(static_cast<char>(bits >> (8 * i)));
    }
    return Feature(2, List(packed));
  }
  std::string operator()(const std::vector<int64_t>& values) const {
    std::string packed;
    for (int64_t value : values) AppendVarint(static_cast<uint64_t>(value), packed);
    return Feature(3, List(packed));
  }

  static std::string List(absl::string_view packed) {
    std::string list;
    if (!packed.empty()) AppendBytesField(1, packed, list);
    return list;
  }
  static std::string Feature(int kind, absl::string_view list) {
    std::string feature;
    AppendBytesField(kind, list, feature);
    return feature;
  }
};

}  // namespace

absl::StatusOr<Features> ReadExample(absl::string_view record) {
  Features features;
  const auto read_features = [&](const Field& field) {
    return field.number == 1 && field.type == WireType::kBytes ? ReadEntry(record, field.bytes, features) : absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachField(record, record, [&](const Field& field) {
    return field.number == 1 && field.type == WireType::kBytes ? ForEachField(record, field.bytes, read_features) : absl::OkStatus();
  }));
  return features;
}

std::string WriteExample(const Features& features) {
  std::string entries;
  for (const auto& [name, values] : features) {
    std::string entry;
    AppendBytesField(1, name, entry);
    AppendBytesField(2, std::visit(FeatureWriter(), values), entry);
    AppendBytesField(1, entry, entries);
  }
  std::string example;
  AppendBytesField(1, entries, example);
  return example;
}

}  // namespace divvy
