#include "strategy/summary_writer.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file_system.h"
#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "formats/event_file.h"
#include "formats/png.h"
#include "formats/tfrecord.h"
#include "formats/utf8.h"

namespace divvy {

absl::Status CheckSummaryRun(absl::string_view run) {
  const auto is_good = [](absl::string_view part) {
    const auto fits = [](char c) {
      return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
    };
    return !part.empty() && part != "." && part != ".." &&
           std::all_of(part.begin(), part.end(), fits);
  };
  const std::vector<absl::string_view> parts = absl::StrSplit(run, '/', absl::AllowEmpty());
  if (run.empty() || std::all_of(parts.begin(), parts.end(), is_good)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a TensorBoard run cannot be named \"", run,
                   "\": use letters, digits, '_', '.' and '-', joined by '/'"));
}

namespace {

// The bytes of a wrong text that its error has.
constexpr size_t kShownBytes = 40;

// A "|" or a line end would break the table.
std::string Cell(absl::string_view text) {
  std::string cell;
  for (const char c : text) {
    if (c == '|') cell.push_back('\\');
    cell.push_back(c == '\n' ? ' ' : c);
  }
  return cell;
}

// Protobuf's readers refuse a whole record with text that is not UTF-8, and TensorBoard then shows
// none of the runs.
absl::Status CheckUtf8(absl::string_view what, absl::string_view text) {
  if (IsUtf8(text)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is not UTF-8, and TensorBoard could not read it: \"",
                   absl::CHexEscape(text.substr(0, kShownBytes)), "\"",
                   text.size() > kShownBytes ? "..." : "", "; convert it"));
}

absl::Status CheckText(const EventValue& value) {
  RETURN_IF_ERROR(CheckUtf8("the name of a TensorBoard series", value.tag));
  if (const auto* const text = std::get_if<std::string>(&value.data))
    return CheckUtf8(absl::StrCat("text \"", value.tag, "\""), *text);
  const auto* const hparams = std::get_if<EventHParams>(&value.data);
  if (hparams == nullptr) return absl::OkStatus();
  for (const auto& [name, hparam] : hparams->values) {
    RETURN_IF_ERROR(CheckUtf8("hparams: a name", name));
    if (const auto* const text = std::get_if<std::string>(&hparam))
      RETURN_IF_ERROR(CheckUtf8(absl::StrCat("hparams: the value of \"", name, "\""), *text));
  }
  return absl::OkStatus();
}

absl::Status CheckTag(absl::string_view tag) {
  return tag.empty() ? absl::InvalidArgumentError(
                           "a TensorBoard series needs a name, such as \"weights/kernel\"")
                     : absl::OkStatus();
}

absl::Status Refused(absl::string_view what, absl::string_view tag, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(what, " \"", tag, "\": ", why));
}

std::vector<HistogramBucket> BucketsOf(const ValueHistogram& histogram) {
  std::vector<HistogramBucket> buckets;
  const double count = static_cast<double>(histogram.counts.size());
  // The ends are the values themselves, whatever rounding does, and their distance may be greater
  // than the greatest double.
  const auto edge = [&](size_t i) {
    const double part = static_cast<double>(i) / count;
    return i == histogram.counts.size() ? histogram.high
                                        : histogram.low * (1 - part) + histogram.high * part;
  };
  for (size_t i = 0; i < histogram.counts.size(); ++i)
    buckets.push_back({edge(i), edge(i + 1), static_cast<double>(histogram.counts[i])});
  return buckets;
}

// ---- images

constexpr int64_t kMaxImageBytes = int64_t{64} << 20;

absl::Status CheckImages(absl::string_view tag, const Tensor& images, int max_outputs) {
  const auto refused = [&](absl::string_view why) { return Refused("image", tag, why); };
  const Shape& shape = images.shape();
  const std::string is = absl::StrCat(DTypeName(images.dtype()), " ", shape.ToString());
  if (images.dtype() != DType::kUInt8 && !IsFloating(images.dtype()))
    return refused(absl::StrCat("the pixels are ", is,
                                "; wanted uint8 (0 to 255) or a floating dtype (0 to 1)"));
  const int rank = shape.rank();
  if (rank != 3 && rank != 4)
    return refused(absl::StrCat("the pixels are ", is,
                                "; wanted [height, width, channels], or [n, height, width, "
                                "channels] for several images"));
  const int64_t channels = shape.dim(rank - 1);
  if (channels < 1 || channels > 4)
    return refused(absl::StrCat("the pixels are ", is,
                                ": the last dimension is the channels, from 1 (gray) to 4 (red, "
                                "green, blue, alpha)"));
  if (shape.num_elements() == 0) return refused(absl::StrCat("the pixels are ", is, ": none"));
  const int64_t bytes = shape.num_elements() / (rank == 4 ? shape.dim(0) : 1);
  if (bytes > kMaxImageBytes)
    return refused(absl::StrCat("one image has ", bytes, " values, more than ", kMaxImageBytes,
                                ": make it smaller"));
  if (max_outputs < 1)
    return refused(absl::StrCat("max_outputs is ", max_outputs, "; wanted at least 1"));
  return absl::OkStatus();
}

// Rounds as tf.image.convert_image_dtype does with saturate=True. False: a pixel is NaN.
template <typename T>
bool AppendPixels(const T* pixels, int64_t count, std::string& bytes) {
  for (int64_t i = 0; i < count; ++i) {
    const double pixel = ElementAsDouble(pixels[i]);
    if (std::isnan(pixel)) return false;
    bytes.push_back(static_cast<char>(static_cast<uint8_t>(std::clamp(pixel * 255.5, 0.0, 255.0))));
  }
  return true;
}

// The bytes of `count` elements from the first one on.
bool PixelsOf(const Tensor& images, int64_t count, std::string& bytes) {
  switch (images.dtype()) {
    case DType::kFloat16: return AppendPixels(images.data_as<Half>(), count, bytes);
    case DType::kBFloat16: return AppendPixels(images.data_as<BFloat16>(), count, bytes);
    case DType::kFloat32: return AppendPixels(images.data_as<float>(), count, bytes);
    case DType::kFloat64: return AppendPixels(images.data_as<double>(), count, bytes);
    default:
      bytes.assign(static_cast<const char*>(images.data()), static_cast<size_t>(count));
      return true;
  }
}

// ---- hyperparameters

absl::Status CheckHParams(const std::map<std::string, HParam>& hparams) {
  if (hparams.empty())
    return absl::InvalidArgumentError("hparams: there is none; give at least one");
  for (const auto& [name, value] : hparams) {
    if (name.empty()) return absl::InvalidArgumentError("hparams: a hyperparameter has no name");
    const double* const number = std::get_if<double>(&value.value());
    if (number != nullptr && !std::isfinite(*number))
      return absl::InvalidArgumentError(
          absl::StrCat("hparams: \"", name, "\" is ", *number, "; wanted a finite number"));
  }
  return absl::OkStatus();
}

// Equal hyperparameters have equal groups.
std::string GroupOf(const std::map<std::string, HParam>& hparams) {
  std::string text;
  for (const auto& [name, value] : hparams) {
    const std::string words = std::visit(
        [](const auto& word) -> std::string {
          if constexpr (std::is_same_v<std::decay_t<decltype(word)>, double>) {
            return absl::StrFormat("%.17g", word);
          } else {
            return absl::StrCat(word);
          }
        },
        value.value());
    // With their lengths, so that no two sets of names and values look alike.
    absl::StrAppend(&text, name.size(), ":", name, value.value().index(), words.size(), ":", words);
  }
  return absl::StrFormat("%016x", HashText(text));
}

double SecondsOf(absl::Time time) { return absl::ToDoubleSeconds(time - absl::UnixEpoch()); }

}  // namespace

struct SummaryWriter::Run {
  std::string directory;
  std::unique_ptr<WritableFile> file;  // null: not open yet, or failed
};

SummaryWriter::SummaryWriter(std::string directory)
    : SummaryWriter(std::move(directory), FileSystem::Real(), Clock::Real()) {}

SummaryWriter::SummaryWriter(std::string directory, FileSystem& files, const Clock& clock)
    : directory_(std::move(directory)), files_(files), clock_(clock) {}

SummaryWriter::~SummaryWriter() = default;

absl::Status SummaryWriter::Scalars(absl::string_view run, int64_t step,
                                    const std::map<std::string, double>& scalars) {
  Event event;
  event.step = step;
  for (const auto& [name, value] : scalars)
    event.values.push_back({name, static_cast<float>(value)});
  return event.values.empty() ? absl::OkStatus() : Write(run, std::move(event));
}

absl::Status SummaryWriter::Text(absl::string_view run, int64_t step, absl::string_view tag,
                                 absl::string_view markdown) {
  Event event;
  event.step = step;
  event.values.push_back({std::string(tag), std::string(markdown)});
  return Write(run, std::move(event));
}

absl::Status SummaryWriter::Histogram(absl::string_view run, int64_t step, absl::string_view tag,
                                      const Tensor& data, int buckets) {
  RETURN_IF_ERROR(CheckTag(tag));
  constexpr int kMost = 10'000;
  if (buckets < 1 || buckets > kMost)
    return Refused("histogram", tag,
                   absl::StrCat("it has ", buckets, " buckets; wanted 1 to ", kMost));
  ASSIGN_OR_RETURN(const Tensor here, data.To(Device()));
  if (const int64_t bad = CountNotFinite(here); bad > 0)
    return Refused("histogram", tag,
                   absl::StrCat(bad, " of ", here.shape().num_elements(),
                                " values are NaN or infinite, and no bucket takes them: leave them "
                                "out, or write their number with Scalars"));
  ValueHistogram histogram = HistogramOf(here, buckets);
  histogram.counts.resize(static_cast<size_t>(buckets));
  return Histograms(run, step, {{std::string(tag), std::move(histogram)}});
}

absl::Status SummaryWriter::Histograms(absl::string_view run, int64_t step,
                                       const std::map<std::string, ValueHistogram>& histograms) {
  Event event;
  event.step = step;
  for (const auto& [tag, histogram] : histograms) {
    RETURN_IF_ERROR(CheckTag(tag));
    event.values.push_back({tag, BucketsOf(histogram)});
  }
  return event.values.empty() ? absl::OkStatus() : Write(run, std::move(event));
}

absl::Status SummaryWriter::Image(absl::string_view run, int64_t step, absl::string_view tag,
                                  const Tensor& images, int max_outputs) {
  RETURN_IF_ERROR(CheckTag(tag));
  RETURN_IF_ERROR(CheckImages(tag, images, max_outputs));
  const Shape& shape = images.shape();
  const int first = shape.rank() - 3;  // the dimension of the height
  const int64_t count = first == 0 ? 1 : std::min<int64_t>(shape.dim(0), max_outputs);
  const int64_t height = shape.dim(first), width = shape.dim(first + 1),
                channels = shape.dim(first + 2);
  ASSIGN_OR_RETURN(const Tensor here, images.To(Device()));
  std::string pixels;
  if (!PixelsOf(here, count * height * width * channels, pixels))
    return Refused("image", tag, "a pixel is NaN; wanted 0 to 1");
  EventImages files{width, height};
  const size_t image_bytes = static_cast<size_t>(height * width * channels);
  for (int64_t i = 0; i < count; ++i) {
    files.pngs.push_back(WritePng(
        width, height, static_cast<int>(channels),
        absl::string_view(pixels).substr(static_cast<size_t>(i) * image_bytes, image_bytes)));
  }
  Event event;
  event.step = step;
  event.values.push_back({std::string(tag), std::move(files)});
  return Write(run, std::move(event));
}

absl::Status SummaryWriter::HParams(absl::string_view run, int64_t step,
                                    const std::map<std::string, HParam>& hparams) {
  RETURN_IF_ERROR(CheckHParams(hparams));
  EventHParams start{GroupOf(hparams), SecondsOf(clock_.WallTime())};
  for (const auto& [name, value] : hparams) start.values.emplace(name, value.value());
  Event event;
  event.step = step;
  event.values.push_back({kHParamsTag, std::move(start)});
  return Write(run, std::move(event));
}

absl::Status SummaryWriter::Write(absl::string_view name, Event event) {
  RETURN_IF_ERROR(CheckSummaryRun(name));
  for (const EventValue& value : event.values) RETURN_IF_ERROR(CheckText(value));
  std::unique_ptr<Run>& run = runs_[std::string(name)];
  if (run == nullptr)
    run = std::make_unique<Run>(
        Run{name.empty() ? directory_ : absl::StrCat(directory_, "/", name), nullptr});
  if (run->file == nullptr) RETURN_IF_ERROR(Open(*run, event.step));
  event.wall_time = SecondsOf(clock_.WallTime());
  std::string record;
  AppendTfRecord(WriteEvent(event), record);
  const absl::Status written = run->file->Append(record);
  if (!written.ok()) run->file = nullptr;
  return written;
}

// The name has TensorFlow's form: events.out.tfevents.<seconds>.<host>.<process>.<number>.v2.
// TensorBoard reads a run's files in name order, so the number has enough digits for all files of
// one second and process.
absl::Status SummaryWriter::Open(Run& run, int64_t step) {
  RETURN_IF_ERROR(files_.CreateDirectory(run.directory));
  const double now = SecondsOf(clock_.WallTime());
  const std::string stem = absl::StrFormat("%s/events.out.tfevents.%010d.%s.%d", run.directory,
                                           static_cast<int64_t>(now), HostName(), ProcessId());
  absl::StatusOr<std::unique_ptr<WritableFile>> file = absl::AlreadyExistsError("");
  for (int number = 0; absl::IsAlreadyExists(file.status()); ++number) {
    file = files_.OpenForWrite(absl::StrFormat("%s.%03d.v2", stem, number), WriteMode::kCreateNew);
  }
  RETURN_IF_ERROR(file.status());
  // TensorBoard treats the first of these events in a run as the run's beginning and each later
  // event as a restart, so every file has one.
  Event start;
  start.wall_time = now;
  start.step = step;
  start.session_starts = true;
  std::string head = EventFileHead(now);
  AppendTfRecord(WriteEvent(start), head);
  RETURN_IF_ERROR((*file)->Append(head));
  run.file = *std::move(file);
  return files_.SyncDirectory(run.directory);
}

std::string SummaryWriter::Table(const std::map<std::string, std::string>& texts) {
  std::string table = "| | |\n|---|---|\n";
  for (const auto& [name, text] : texts)
    absl::StrAppend(&table, "| ", Cell(name), " | ", Cell(text), " |\n");
  return table;
}

absl::Status SummaryWriter::Sync() {
  absl::Status status;
  for (auto& [name, run] : runs_) {
    if (run->file == nullptr) continue;
    const absl::Status synced = run->file->Sync();
    if (!synced.ok()) run->file = nullptr;
    status.Update(synced);
  }
  return status;
}

}  // namespace divvy
