#include "formats/example.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "formats/little_endian.h"
#include "formats/protobuf_fields.h"

namespace divvy {
namespace {

using Features = std::map<absl::string_view, ExampleValues>;

constexpr char kKind[] = "a tf.train.Example";

// ---- reading; `record` is the whole record, for the offsets in messages

absl::Status ReadPackedFloats(const ProtobufRecord& record, absl::string_view bytes,
                              std::vector<float>& values) {
  if (bytes.size() % 4 != 0)
    return ProtobufReader(record, bytes)
        .Error(absl::StrCat("packed floats of ", bytes.size(), " bytes, not a multiple of 4"));
  values.reserve(values.size() + bytes.size() / 4);
  for (; !bytes.empty(); bytes.remove_prefix(4)) values.push_back(LoadLittleEndian<float>(bytes));
  return absl::OkStatus();
}

absl::Status ReadPackedInts(const ProtobufRecord& record, absl::string_view bytes,
                            std::vector<int64_t>& values) {
  ProtobufReader reader(record, bytes);
  while (!reader.done()) {
    ASSIGN_OR_RETURN(const uint64_t value, reader.Varint());
    values.push_back(static_cast<int64_t>(value));
  }
  return absl::OkStatus();
}

// Adds the values of one field of a list.
absl::Status ReadValues(const ProtobufRecord&, const ProtobufField& field,
                        std::vector<absl::string_view>& values) {
  if (field.type == ProtobufType::kBytes) values.push_back(field.bytes);
  return absl::OkStatus();
}
absl::Status ReadValues(const ProtobufRecord& record, const ProtobufField& field,
                        std::vector<float>& values) {
  if (field.type == ProtobufType::kBytes) return ReadPackedFloats(record, field.bytes, values);
  if (field.type == ProtobufType::kFixed32) values.push_back(LoadLittleEndian<float>(field.bytes));
  return absl::OkStatus();
}
absl::Status ReadValues(const ProtobufRecord& record, const ProtobufField& field,
                        std::vector<int64_t>& values) {
  if (field.type == ProtobufType::kBytes) return ReadPackedInts(record, field.bytes, values);
  if (field.type == ProtobufType::kVarint) values.push_back(static_cast<int64_t>(field.varint));
  return absl::OkStatus();
}

// Reads a list into `values`. Values of another type are dropped; a list of the same type is
// extended.
template <typename T>
absl::Status ReadList(const ProtobufRecord& record, absl::string_view message,
                      ExampleValues& values) {
  if (!std::holds_alternative<std::vector<T>>(values)) values = std::vector<T>();
  auto& list = std::get<std::vector<T>>(values);
  return ForEachField(record, message, [&](const ProtobufField& field) {
    return field.number == 1 ? ReadValues(record, field, list) : absl::OkStatus();
  });
}

absl::Status ReadFeature(const ProtobufRecord& record, absl::string_view message,
                         ExampleValues& values) {
  return ForEachField(record, message, [&](const ProtobufField& field) {
    if (field.type != ProtobufType::kBytes) return absl::OkStatus();
    switch (field.number) {
      case 1: return ReadList<absl::string_view>(record, field.bytes, values);
      case 2: return ReadList<float>(record, field.bytes, values);
      case 3: return ReadList<int64_t>(record, field.bytes, values);
      default: return absl::OkStatus();
    }
  });
}

absl::Status ReadEntry(const ProtobufRecord& record, absl::string_view message,
                       Features& features) {
  absl::string_view name;
  ExampleValues values;
  RETURN_IF_ERROR(ForEachField(record, message, [&](const ProtobufField& field) {
    if (field.type != ProtobufType::kBytes) return absl::OkStatus();
    if (field.number == 1) name = field.bytes;
    return field.number == 2 ? ReadFeature(record, field.bytes, values) : absl::OkStatus();
  }));
  features[name] = std::move(values);
  return absl::OkStatus();
}

// ---- writing

struct FeatureWriter {
  std::string operator()(std::monostate) const { return ""; }
  std::string operator()(const std::vector<absl::string_view>& values) const {
    std::string list;
    for (absl::string_view value : values) AppendBytesField(1, value, list);
    return Feature(1, list);
  }
  std::string operator()(const std::vector<float>& values) const {
    std::string packed;
    for (float value : values) AppendLittleEndian(value, packed);
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

absl::StatusOr<Features> ReadExample(absl::string_view bytes) {
  const ProtobufRecord record{kKind, bytes};
  Features features;
  const auto read_features = [&](const ProtobufField& field) {
    return field.number == 1 && field.type == ProtobufType::kBytes
               ? ReadEntry(record, field.bytes, features)
               : absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachField(record, bytes, [&](const ProtobufField& field) {
    return field.number == 1 && field.type == ProtobufType::kBytes
               ? ForEachField(record, field.bytes, read_features)
               : absl::OkStatus();
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
