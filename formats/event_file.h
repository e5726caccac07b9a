// Event files, which TensorBoard shows: TFRecords (formats/tfrecord.h), each a tensorflow.Event in
// protobuf's wire format:
//
//   Event { double wall_time = 1; int64 step = 2; oneof { string file_version = 3; Summary summary
//   = 5; SessionLog session_log = 7; }
//           SourceMetadata { string writer = 1; } source_metadata = 10; }
//   Summary { repeated Value { string tag = 1; float simple_value = 2; Tensor tensor = 8; Metadata
//   { PluginData { string plugin_name = 1; } plugin_data = 1; }
//             metadata = 9; } value = 1; }
//   SessionLog { SessionStatus status = 1; }    START = 1
//
// Fields that are not named here are passed over. A file begins with an event that has the
// file_version "brain.Event:2"; its name has "tfevents" in it. A directory is a run: its files are
// read in the order of their names, and one process writes them.
#ifndef DIVVY_FORMATS_EVENT_FILE_H_
#define DIVVY_FORMATS_EVENT_FILE_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// Of a histogram: how many values are in [left, right); the last one's right counts too.
struct HistogramBucket {
  double left = 0, right = 0, count = 0;
};

// A point: a scalar, a text (Markdown) or a histogram, of TensorBoard's plugins "scalars", "text"
// and "histograms". NaN and infinities are scalars like any others. std::monostate: of another kind
// (an image, say), which is not read.
using EventData = std::variant<std::monostate, float, std::string, std::vector<HistogramBucket>>;

struct EventValue {
  std::string tag;  // its series: "loss"
  EventData data;
};

struct Event {
  double wall_time = 0;  // seconds since 1970
  int64_t step = 0;
  std::vector<EventValue> values = {};
  std::string file_version = {};   // of the first event of a file alone
  std::string source_writer = {};  // likewise: which program wrote it
  // The run begins at `step`, or goes on there after a restart: what files before this one have of
  // this step and later ones does not count.
  bool session_starts = false;
};

// Pure. DataLoss, with the offset in the record: not the wire format, or cut off.
absl::StatusOr<Event> ReadEvent(absl::string_view record);

// The inverse: the bytes that tf.summary writes. Values without data have their tag alone.
std::string WriteEvent(const Event& event);

// What every event file begins with, as a TFRecord.
std::string EventFileHead(double wall_time);

// The events of a file up to where it is damaged. A file that is being written, or whose writer has
// died, may end within a record: the others count.
struct EventFile {
  std::vector<Event> events;
  // OK, or DataLoss: what the rest of the file is, with the offset
  absl::Status end;
};
// Pure. DataLoss: it does not begin as an event file does.
absl::StatusOr<EventFile> ReadEventFile(absl::string_view file);

// Whether TensorBoard takes a file of this name for an event file.
bool IsEventFileName(absl::string_view name);

}  // namespace divvy

#endif  // DIVVY_FORMATS_EVENT_FILE_H_
