// Event files for TensorBoard, as tf.summary writes them.
#ifndef DIVVY_STRATEGY_SUMMARY_WRITER_H_
#define DIVVY_STRATEGY_SUMMARY_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace divvy {

class Clock;
class FileSystem;
struct Event;

// Checks that TensorBoard can show a run of this name. InvalidArgument: it cannot; the message says
// what names consist of.
absl::Status CheckSummaryRun(absl::string_view run);

// Writes the runs of a log directory. `tensorboard --logdir DIRECTORY` shows each sub-directory
// that holds an event file as a run with the sub-directory's name. A run must be written by one
// process only.
//
//   SummaryWriter summaries("/logs/experiment-7");
//   // /logs/experiment-7/train/events.out.tfevents...
//   RETURN_IF_ERROR(summaries.Scalars("train", coordinator.step(), {{"loss", loss}}));
//
// The first point of a run creates its directory and file. If the run already has files, it resumes
// at the first point's step: TensorBoard hides what the older files have of that step and later
// ones. So a job that returned to a checkpoint draws no line twice.
//
// When a call returns, readers of the file see its point. A process that dies during a call leaves
// all earlier points intact. Call Sync for points that must survive a crash of the machine.
//
// Not thread-safe. Calls block while they write.
//
// Errors are the file system's, with the file's name (ResourceExhausted: the disk is full;
// PermissionDenied; ...). The caller may continue after an error: the run's next point begins a new
// file. The point of the failed call is lost, and earlier points that were not synced may be lost.
class SummaryWriter {
 public:
  explicit SummaryWriter(std::string directory);
  // REQUIRES: `files` and `clock` outlive the writer.
  SummaryWriter(std::string directory, FileSystem& files, const Clock& clock);
  SummaryWriter(SummaryWriter&&) = delete;
  // Closes the files; does not sync.
  ~SummaryWriter();

  // Adds a point to the series of each name. Values are stored as float32, as tf.summary.scalar
  // does; NaN and infinity are valid. Nothing is written if `scalars` is empty. `run` consists of
  // parts of [A-Za-z0-9_.-]+ joined by '/', none of them "." or ".."; an empty run is the directory
  // itself. InvalidArgument: another form. Steps need not be consecutive. The point's time is the
  // clock's.
  absl::Status Scalars(absl::string_view run, int64_t step,
                       const std::map<std::string, double>& scalars);
  // Adds a text, as tf.summary.text does: Markdown, under the name `tag`. Errors: as Scalars.
  absl::Status Text(absl::string_view run, int64_t step, absl::string_view tag,
                    absl::string_view markdown);
  // Returns a Markdown table of names and texts, one line each, for Text. Pure.
  static std::string Table(const std::map<std::string, std::string>& texts);
  // Returns when all points are on the disk. Returns the first error, after trying to sync every
  // run.
  absl::Status Sync();

 private:
  struct Run;
  absl::Status Write(absl::string_view run, Event event);
  absl::Status Open(Run& run, int64_t step);

  const std::string directory_;
  FileSystem& files_;
  const Clock& clock_;
  std::map<std::string, std::unique_ptr<Run>> runs_;
};

}  // namespace divvy

#endif  // DIVVY_STRATEGY_SUMMARY_WRITER_H_
