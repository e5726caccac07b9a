// Event files, which TensorBoard displays. A file consists of TFRecords (formats/tfrecord.h); each
// is a tensorflow.Event in protobuf's wire format:
//
//   Event {
//     double wall_time = 1;
//     int64 step = 2;
//     oneof { string file_version = 3; Summary summary = 5; SessionLog session_log = 7; }
//     SourceMetadata { string writer = 1; } source_metadata = 10;
//   }
//   Summary {
//     repeated Value {
//       string tag = 1;
//       float simple_value = 2;
//       Tensor tensor = 8;
//       Metadata { PluginData { string plugin_name = 1; bytes content = 2; } plugin_data = 1; }
//           metadata = 9;
//     } value = 1;
//   }
//   SessionLog { SessionStatus status = 1; }    START = 1
//
// Other fields are skipped. The first event of a file has the file_version "brain.Event:2", and the
// file's name contains "tfevents". A directory is a run: one process writes its files, and they are
// read in the order of their names.
#ifndef DIVVY_FORMATS_EVENT_FILE_H_
#define DIVVY_FORMATS_EVENT_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// One bucket of a histogram: the number of values in [left, right). The last bucket includes its
// right end.
struct HistogramBucket {
  double left = 0, right = 0, count = 0;
};

// Images of one size, each as a PNG file.
struct EventImages {
  int64_t width = 0, height = 0;
  std::vector<std::string> pngs = {};
};

// The values with which a run was started, for the plugin's table of runs. The runs of one group
// are trials of the same values.
struct EventHParams {
  std::string group;
  double start_time = 0;  // seconds since 1970
  std::map<std::string, std::variant<bool, double, std::string>> values = {};
};

// The data of one point: a scalar, a text (Markdown), a histogram, images or hyperparameters, for
// TensorBoard's plugins "scalars", "text", "histograms", "images" and "hparams". A scalar may be
// NaN or infinite. std::monostate: data of another kind. Images and hyperparameters are written and
// not read: reading gives std::monostate for them.
using EventData = std::variant<std::monostate, float, std::string, std::vector<HistogramBucket>,
                               EventImages, EventHParams>;

// The tag that EventHParams must have.
inline constexpr char kHParamsTag[] = "_hparams_/session_start_info";

struct EventValue {
  std::string tag;  // names the series: "loss"
  EventData data;
};

struct Event {
  double wall_time = 0;  // seconds since 1970
  int64_t step = 0;
  std::vector<EventValue> values = {};
  std::string file_version = {};   // only in the first event of a file
  std::string source_writer = {};  // likewise: the program that wrote the file
  // The run starts at `step`, or resumes there after a restart. Values of this step and later ones
  // in earlier files no longer count.
  bool session_starts = false;
};

// Decodes one event. Pure. DataLoss, with the offset in the record: the record is not in protobuf's
// wire format, or is truncated.
absl::StatusOr<Event> ReadEvent(absl::string_view record);

// The inverse of ReadEvent: the bytes that tf.summary writes. A value without data is written with
// its tag alone. Pure.
std::string WriteEvent(const Event& event);

// The first record of every event file, as a TFRecord. `wall_time` is in seconds since 1970.
std::string EventFileHead(double wall_time);

// The events of a file up to the first damage. A file that is still being written, or whose writer
// has crashed, may end within a record; the events before it count.
struct EventFile {
  std::vector<Event> events;
  // OK, or DataLoss: what is wrong with the rest of the file, with the offset.
  absl::Status end;
};
// Decodes a whole file. Pure. DataLoss: the file does not begin as an event file does.
absl::StatusOr<EventFile> ReadEventFile(absl::string_view file);

// Whether TensorBoard considers a file of this name an event file.
bool IsEventFileName(absl::string_view name);

}  // namespace divvy

#endif  // DIVVY_FORMATS_EVENT_FILE_H_
