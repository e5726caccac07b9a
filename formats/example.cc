#include "formats/example.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "formats/little_endian.h"
#include "formats/protobuf_fields.h"

namespace divvy {
namespace {

using Features = std::map<absl::string_view, ExampleValues>;

constexpr char kExampleKind[] = "a tf.train.Example";

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

// ---- rows

// Reads a field of bytes with this number from the front of `message`. False: something else is
// there.
bool TakeBytesField(uint64_t number, absl::string_view& message, absl::string_view* bytes) {
  if (message.size() < 2 || static_cast<uint8_t>(message[0]) != (number << 3 | 2)) return false;
  size_t at = 1, length = 0;
  for (int shift = 0;; shift += 7) {
    constexpr int kMostShift = 28;  // longer lengths are left to ReadExample
    if (at == message.size() || shift > kMostShift) return false;
    const uint8_t byte = static_cast<uint8_t>(message[at++]);
    length |= static_cast<size_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  if (length > message.size() - at) return false;
  *bytes = message.substr(at, length);
  message.remove_prefix(at + length);
  return true;
}

// Reads `count` varints, which are all of `bytes`.
bool ReadVarints(absl::string_view bytes, size_t count, char* to) {
  const char* p = bytes.data();
  const char* const end = p + bytes.size();
  for (size_t i = 0; i < count; ++i) {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (p == end || shift >= 64) return false;
      const uint8_t byte = static_cast<uint8_t>(*p++);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    std::memcpy(to + i * sizeof(value), &value, sizeof(value));
  }
  return p == end;
}

bool ReadFloats(absl::string_view bytes, size_t count, char* to) {
  if (bytes.size() != count * sizeof(float)) return false;
  for (size_t i = 0; i < count; ++i) {
    const float value = LoadLittleEndian<float>(bytes.substr(i * sizeof(float)));
    std::memcpy(to + i * sizeof(value), &value, sizeof(value));
  }
  return true;
}

// Reads `count` fields of bytes, which are all of `list`.
bool ReadTexts(absl::string_view list, size_t count, char* to) {
  for (size_t i = 0; i < count; ++i) {
    absl::string_view text;
    if (!TakeBytesField(1, list, &text)) return false;
    std::memcpy(to + i * sizeof(text), &text, sizeof(text));
  }
  return list.empty();
}

// Reads a Feature that is one packed list, or one list of bytes.
bool ReadColumn(absl::string_view feature, const ExampleColumn& column, char* to) {
  if (column.type == ExampleColumn::Type::kBytes) {
    absl::string_view list;
    return TakeBytesField(1, feature, &list) && feature.empty() &&
           ReadTexts(list, column.count, to);
  }
  const bool is_float = column.type == ExampleColumn::Type::kFloat;
  absl::string_view list, packed;
  if (!TakeBytesField(is_float ? 2 : 3, feature, &list) || !feature.empty()) return false;
  if (!TakeBytesField(1, list, &packed) || !list.empty()) return false;
  return is_float ? ReadFloats(packed, column.count, to) : ReadVarints(packed, column.count, to);
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
  const ProtobufRecord record{kExampleKind, bytes};
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

ExampleRowReader::ExampleRowReader(std::vector<ExampleColumn> columns)
    : columns_(std::move(columns)), seen_(columns_.size()) {}

bool ExampleRowReader::Read(absl::string_view record, absl::Span<char* const> to) {
  seen_.assign(columns_.size(), false);
  absl::string_view features;
  if (!TakeBytesField(1, record, &features) || !record.empty()) return false;
  return ReadFeatures(features, to) && std::find(seen_.begin(), seen_.end(), false) == seen_.end();
}

bool ExampleRowReader::ReadFeatures(absl::string_view features, absl::Span<char* const> to) {
  for (size_t place = 0; !features.empty(); ++place) {
    absl::string_view entry;
    if (!TakeBytesField(1, features, &entry) || !ReadEntry(entry, place, to)) return false;
  }
  return true;
}

bool ExampleRowReader::ReadEntry(absl::string_view entry, size_t place,
                                 absl::Span<char* const> to) {
  absl::string_view name, feature;
  if (!TakeBytesField(1, entry, &name) || !TakeBytesField(2, entry, &feature) || !entry.empty())
    return false;
  const std::optional<size_t> column = ColumnOf(name, place);
  if (column) {
    if (seen_[*column]) return false;
    seen_[*column] = true;
    return ReadColumn(feature, columns_[*column], to[*column]);
  }
  // Nobody wants it, but a record that is damaged here is bad.
  ExampleValues values;
  return ReadFeature({kExampleKind, feature}, feature, values).ok();
}

std::optional<size_t> ExampleRowReader::ColumnOf(absl::string_view name, size_t place) {
  if (place >= last_.size()) last_.resize(place + 1, columns_.size());
  if (last_[place] < columns_.size() && columns_[last_[place]].name == name) return last_[place];
  const auto found = std::find_if(columns_.begin(), columns_.end(),
                                  [name](const ExampleColumn& c) { return c.name == name; });
  if (found == columns_.end()) return std::nullopt;
  last_[place] = static_cast<size_t>(found - columns_.begin());
  return last_[place];
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
