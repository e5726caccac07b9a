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

// Whether TensorBoard can show a run of that name; InvalidArgument: what names are made of.
absl::Status CheckSummaryRun(absl::string_view run);

// The runs of a log directory: `tensorboard --logdir DIRECTORY` shows each sub-directory that holds
// an event file as a run of its name. One process writes a run.
//
//   SummaryWriter summaries("/logs/experiment-7");
//   // /logs/experiment-7/train/events.out.tfevents...
//   RETURN_IF_ERROR(summaries.Scalars("train", coordinator.step(), {{"loss", loss}}));
//
// A run's directory and file are made with its first point. Where the run has files already, that
// point's step is where it goes on: TensorBoard leaves out what the others have of this step and
// later ones, so a job that went back to a checkpoint draws no line twice.
//
// A point is in the file, for whoever reads it, when its call has returned; a process that dies
// within one leaves the points before whole. What a machine's crash must not lose: Sync.
//
// Not thread-safe. Blocks for as long as writing takes.
//
// Errors are the file system's (ResourceExhausted: the disk is full; PermissionDenied; ...), with
// the file's name. A run whose file failed begins another with its next point, so the caller may go
// on: what is lost is the point of that call, and what had not been synced.
class SummaryWriter {
 public:
  explicit SummaryWriter(std::string directory);
  // REQUIRES: both outlive it
  SummaryWriter(std::string directory, FileSystem& files, const Clock& clock);
  SummaryWriter(SummaryWriter&&) = delete;
  ~SummaryWriter();  // ends the files; does not sync

  // A point in the series of each name, kept as float32, as tf.summary.scalar does; NaN and
  // infinity are points, too. No scalars: nothing is written. `run`: parts of [A-Za-z0-9_.-]+
  // joined by '/', none of them "." or ".."; empty: the directory itself. InvalidArgument: another
  // name. Steps need not follow each other; the point's time is the clock's.
  absl::Status Scalars(absl::string_view run, int64_t step,
                       const std::map<std::string, double>& scalars);
  // tf.summary.text: Markdown, under the name `tag`. Errors as Scalars.
  absl::Status Text(absl::string_view run, int64_t step, absl::string_view tag,
                    absl::string_view markdown);
  // A Markdown table with a line for each text and its name, for Text. Pure.
  static std::string Table(const std::map<std::string, std::string>& texts);
  // Returns when all points are on the disk. The first error; the other runs are synced.
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
