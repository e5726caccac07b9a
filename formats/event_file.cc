#include "formats/event_file.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "formats/little_endian.h"
#include "formats/protobuf_fields.h"
#include "formats/tfrecord.h"

namespace divvy {
namespace {

constexpr char kEventKind[] = "a tensorflow.Event";
constexpr char kFileVersion[] = "brain.Event:2";
constexpr uint64_t kSessionStart = 1;

// ---- tensors, as the points of a series have them

enum class TensorType : uint64_t { kFloat = 1, kDouble = 2, kString = 7 };

struct EventTensor {
  uint64_t type = 0;
  std::vector<int64_t> dims;
  absl::string_view content;              // all numbers, little endian
  std::optional<absl::string_view> text;  // the first of its strings
  bool Is(TensorType wanted) const { return type == static_cast<uint64_t>(wanted); }
};

absl::Status ReadTensorDims(const ProtobufRecord& record, absl::string_view message,
                            std::vector<int64_t>& dims) {
  const auto read_size = [&](const ProtobufField& field) {
    if (field.Is(1, ProtobufType::kVarint)) dims.back() = static_cast<int64_t>(field.varint);
    return absl::OkStatus();
  };
  return ForEachField(record, message, [&](const ProtobufField& field) {
    if (!field.Is(2, ProtobufType::kBytes)) return absl::OkStatus();
    dims.push_back(0);
    return ForEachField(record, field.bytes, read_size);
  });
}

// The numbers may be in tensor_content, float_val or double_val, packed or not. For a single number
// the bytes are the same in all of these.
absl::Status ReadTensor(const ProtobufRecord& record, absl::string_view message,
                        EventTensor& tensor) {
  return ForEachField(record, message, [&](const ProtobufField& field) {
    if (field.type == ProtobufType::kVarint) {
      if (field.number == 1) tensor.type = field.varint;
      return absl::OkStatus();
    }
    switch (field.number) {
      case 2:
        return field.type == ProtobufType::kBytes ? ReadTensorDims(record, field.bytes, tensor.dims)
                                                  : absl::OkStatus();
      case 4:
      case 5:
      case 6: tensor.content = field.bytes; break;
      case 8: tensor.text = tensor.text.value_or(field.bytes); break;
      default: break;
    }
    return absl::OkStatus();
  });
}

std::vector<HistogramBucket> BucketsFrom(absl::string_view doubles) {
  std::vector<HistogramBucket> buckets;
  constexpr size_t kBytes = sizeof(double);
  for (; !doubles.empty(); doubles.remove_prefix(3 * kBytes)) {
    buckets.push_back({LoadLittleEndian<double>(doubles),
                       LoadLittleEndian<double>(doubles.substr(kBytes)),
                       LoadLittleEndian<double>(doubles.substr(2 * kBytes))});
  }
  return buckets;
}

// A writer may name the plugin only at the first point of a series. Later points are recognized by
// the type of their tensor.
EventData DataFrom(const EventTensor& tensor, absl::string_view plugin) {
  const auto may_be = [plugin](absl::string_view name) { return plugin.empty() || plugin == name; };
  if (may_be("scalars") && tensor.dims.empty()) {
    if (tensor.Is(TensorType::kFloat) && tensor.content.size() == sizeof(float))
      return LoadLittleEndian<float>(tensor.content);
    if (tensor.Is(TensorType::kDouble) && tensor.content.size() == sizeof(double))
      return static_cast<float>(LoadLittleEndian<double>(tensor.content));
  }
  if (may_be("text") && tensor.Is(TensorType::kString) && tensor.dims.empty() && tensor.text)
    return std::string(*tensor.text);
  if (may_be("histograms") && tensor.Is(TensorType::kDouble) && tensor.dims.size() == 2 &&
      tensor.dims[1] == 3) {
    if (tensor.content.size() % (3 * sizeof(double)) == 0) return BucketsFrom(tensor.content);
  }
  return std::monostate();
}

// ---- the messages around them

// plugin_data.plugin_name.
absl::Status ReadPluginName(const ProtobufRecord& record, absl::string_view metadata,
                            absl::string_view& name) {
  const auto read_name = [&](const ProtobufField& field) {
    if (field.Is(1, ProtobufType::kBytes)) name = field.bytes;
    return absl::OkStatus();
  };
  return ForEachField(record, metadata, [&](const ProtobufField& field) {
    return field.Is(1, ProtobufType::kBytes) ? ForEachField(record, field.bytes, read_name)
                                             : absl::OkStatus();
  });
}

absl::Status ReadValue(const ProtobufRecord& record, absl::string_view message, Event& event) {
  EventValue value;
  std::optional<EventTensor> tensor;
  absl::string_view plugin;
  RETURN_IF_ERROR(ForEachField(record, message, [&](const ProtobufField& field) {
    if (field.Is(2, ProtobufType::kFixed32)) value.data = LoadLittleEndian<float>(field.bytes);
    if (field.type != ProtobufType::kBytes) return absl::OkStatus();
    if (field.number == 1) value.tag = std::string(field.bytes);
    if (field.number == 8) return ReadTensor(record, field.bytes, tensor.emplace());
    return field.number == 9 ? ReadPluginName(record, field.bytes, plugin) : absl::OkStatus();
  }));
  if (tensor) value.data = DataFrom(*tensor, plugin);
  event.values.push_back(std::move(value));
  return absl::OkStatus();
}

absl::Status ReadParts(const ProtobufRecord& record, const ProtobufField& part, Event& event) {
  return ForEachField(record, part.bytes, [&](const ProtobufField& field) {
    if (part.number == 5 && field.Is(1, ProtobufType::kBytes))
      return ReadValue(record, field.bytes, event);
    if (part.number == 7 && field.Is(1, ProtobufType::kVarint))
      event.session_starts = field.varint == kSessionStart;
    if (part.number == 10 && field.Is(1, ProtobufType::kBytes))
      event.source_writer = std::string(field.bytes);
    return absl::OkStatus();
  });
}

// ---- writing

struct DataWriter {
  std::string& value;  // the message

  void operator()(std::monostate) const {}
  void operator()(float scalar) const {
    std::string content;
    AppendLittleEndian(scalar, content);
    AppendTensor("scalars", TensorType::kFloat, {}, 4, content);
  }
  void operator()(const std::string& text) const {
    AppendTensor("text", TensorType::kString, {}, 8, text);
  }
  void operator()(const std::vector<HistogramBucket>& buckets) const {
    std::string content;
    for (const HistogramBucket& bucket : buckets) {
      for (const double number : {bucket.left, bucket.right, bucket.count})
        AppendLittleEndian(number, content);
    }
    AppendTensor("histograms", TensorType::kDouble, {buckets.size(), 3}, 4, content);
  }

  // The strings: the width and the height in digits, then the files.
  void operator()(const EventImages& images) const {
    std::string tensor = TensorHead(TensorType::kString, {images.pngs.size() + 2});
    AppendBytesField(8, absl::StrCat(images.width), tensor);
    AppendBytesField(8, absl::StrCat(images.height), tensor);
    for (const std::string& png : images.pngs) AppendBytesField(8, png, tensor);
    Append(tensor, "images", "");
  }
  // The values are in the metadata. The tensor is empty.
  void operator()(const EventHParams& hparams) const {
    std::string start, content;
    for (const auto& [name, number_or_text] : hparams.values) {
      std::string entry, any;
      std::visit(AnyWriter{any}, number_or_text);
      AppendBytesField(1, name, entry);
      AppendBytesField(2, any, entry);
      AppendBytesField(1, entry, start);
    }
    AppendBytesField(4, hparams.group, start);
    AppendDoubleField(5, hparams.start_time, start);
    AppendBytesField(3, start, content);
    Append(TensorHead(TensorType::kFloat, {0}), "hparams", content);
  }

  // A google.protobuf.Value.
  struct AnyWriter {
    std::string& any;
    void operator()(double number) const { AppendDoubleField(2, number, any); }
    void operator()(const std::string& text) const { AppendBytesField(3, text, any); }
    void operator()(bool truth) const { AppendVarintField(4, truth ? 1 : 0, any); }
  };

  static std::string TensorHead(TensorType type, const std::vector<size_t>& dims) {
    std::string shape, tensor;
    for (const size_t size : dims) {
      std::string dim;
      AppendVarintField(1, size, dim);
      AppendBytesField(2, dim, shape);
    }
    AppendVarintField(1, static_cast<uint64_t>(type), tensor);
    AppendBytesField(2, shape, tensor);
    return tensor;
  }
  void AppendTensor(absl::string_view plugin, TensorType type, const std::vector<size_t>& dims,
                    int content_field, absl::string_view content) const {
    std::string tensor = TensorHead(type, dims);
    AppendBytesField(content_field, content, tensor);
    Append(tensor, plugin, "");
  }
  // `content`: what the plugin keeps beside the tensor.
  void Append(absl::string_view tensor, absl::string_view plugin, absl::string_view content) const {
    std::string plugin_data, metadata;
    AppendBytesField(8, tensor, value);
    AppendBytesField(1, plugin, plugin_data);
    if (!content.empty()) AppendBytesField(2, content, plugin_data);
    AppendBytesField(1, plugin_data, metadata);
    AppendBytesField(9, metadata, value);
  }
};

std::string WriteSummary(const std::vector<EventValue>& values) {
  std::string summary;
  for (const EventValue& value : values) {
    std::string message;
    AppendBytesField(1, value.tag, message);
    std::visit(DataWriter{message}, value.data);
    AppendBytesField(1, message, summary);
  }
  return summary;
}

}  // namespace

absl::StatusOr<Event> ReadEvent(absl::string_view bytes) {
  const ProtobufRecord record{kEventKind, bytes};
  Event event;
  RETURN_IF_ERROR(ForEachField(record, bytes, [&](const ProtobufField& field) {
    if (field.Is(1, ProtobufType::kFixed64))
      event.wall_time = LoadLittleEndian<double>(field.bytes);
    if (field.Is(2, ProtobufType::kVarint)) event.step = static_cast<int64_t>(field.varint);
    if (field.Is(3, ProtobufType::kBytes)) event.file_version = std::string(field.bytes);
    const bool has_parts = field.type == ProtobufType::kBytes &&
                           (field.number == 5 || field.number == 7 || field.number == 10);
    return has_parts ? ReadParts(record, field, event) : absl::OkStatus();
  }));
  return event;
}

std::string WriteEvent(const Event& event) {
  std::string record;
  AppendDoubleField(1, event.wall_time, record);
  if (event.step != 0) AppendVarintField(2, static_cast<uint64_t>(event.step), record);
  if (!event.file_version.empty()) AppendBytesField(3, event.file_version, record);
  if (!event.values.empty()) AppendBytesField(5, WriteSummary(event.values), record);
  if (event.session_starts) {
    std::string log;
    AppendVarintField(1, kSessionStart, log);
    AppendBytesField(7, log, record);
  }
  if (!event.source_writer.empty()) {
    std::string source;
    AppendBytesField(1, event.source_writer, source);
    AppendBytesField(10, source, record);
  }
  return record;
}

std::string EventFileHead(double wall_time) {
  Event event;
  event.wall_time = wall_time;
  event.file_version = kFileVersion;
  event.source_writer = "divvy";
  std::string file;
  AppendTfRecord(WriteEvent(event), file);
  return file;
}

absl::StatusOr<EventFile> ReadEventFile(absl::string_view bytes) {
  EventFile file;
  size_t offset = 0;
  while (file.end.ok()) {
    const size_t start = offset;
    const auto record = ReadTfRecord(bytes, offset);
    if (record.ok() && !record->has_value()) break;
    absl::StatusOr<Event> event = record.ok() ? ReadEvent(**record) : record.status();
    if (event.ok()) {
      file.events.push_back(*std::move(event));
    } else {
      file.end =
          record.ok()
              ? absl::DataLossError(absl::StrCat("offset ", start, ": ", event.status().message()))
              : event.status();
    }
  }
  if (!file.events.empty() && file.events[0].file_version == kFileVersion) return file;
  if (file.events.empty() && !file.end.ok()) return file.end;
  return absl::DataLossError(
      absl::StrCat("not an event file: it does not begin with the file version ", kFileVersion));
}

bool IsEventFileName(absl::string_view name) { return absl::StrContains(name, "tfevents"); }

}  // namespace divvy
