// Event files for TensorBoard, as tf.summary writes them.
#ifndef DIVVY_STRATEGY_SUMMARY_WRITER_H_
#define DIVVY_STRATEGY_SUMMARY_WRITER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "kernels/value_histogram.h"
#include "tensor/tensor.h"

namespace divvy {

class Clock;
class FileSystem;
struct Event;

// Checks that TensorBoard can show a run of this name. InvalidArgument: it cannot; the message says
// what names consist of.
absl::Status CheckSummaryRun(absl::string_view run);

// The value of a hyperparameter: a truth, a number or a text.
class HParam {
 public:
  HParam(bool value) : value_(value) {}                      // NOLINT: as in a literal
  HParam(const char* value) : value_(std::string(value)) {}  // NOLINT: as in a literal
  HParam(std::string value) : value_(std::move(value)) {}    // NOLINT: as in a literal
  template <typename Number,
            typename = std::enable_if_t<std::is_arithmetic_v<Number> &&
                                        !std::is_same_v<std::remove_cv_t<Number>, bool>>>
  HParam(Number value) : value_(static_cast<double>(value)) {}  // NOLINT: as in a literal
  const std::variant<bool, double, std::string>& value() const { return value_; }

 private:
  std::variant<bool, double, std::string> value_;
};

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
  // itself. InvalidArgument: another form, or a name that is not UTF-8. Steps need not be
  // consecutive. The point's time is the clock's.
  absl::Status Scalars(absl::string_view run, int64_t step,
                       const std::map<std::string, double>& scalars);
  // Adds a text, as tf.summary.text does: Markdown, under the name `tag`. Errors: as Scalars.
  absl::Status Text(absl::string_view run, int64_t step, absl::string_view tag,
                    absl::string_view markdown);
  // Adds a histogram of the values of `data` under the name `tag`, as tf.summary.histogram does: of
  // any shape and dtype, in `buckets` buckets of equal width from the smallest to the greatest
  // value. Without any value all buckets are zero. InvalidArgument: a value is NaN or infinite
  // (Scalars takes these), buckets is not from 1 to 10,000, or the tag is empty. Other errors: as
  // Scalars, and those of a copy from a GPU.
  absl::Status Histogram(absl::string_view run, int64_t step, absl::string_view tag,
                         const Tensor& data, int buckets = kHistogramBuckets);
  // Adds a point to the histogram of each name, in one record. Nothing is written if there is none.
  // Errors: as Scalars.
  absl::Status Histograms(absl::string_view run, int64_t step,
                          const std::map<std::string, ValueHistogram>& histograms);
  // Adds images under the name `tag`, as tf.summary.image does. `images` has the shape [n, height,
  // width, channels], or [height, width, channels] for one image; 1 channel is gray, 2 are gray and
  // alpha, 3 are red, green and blue, 4 are these and alpha. The dtype is uint8 (0 to 255) or
  // floating (0 to 1; values beyond are clipped). The first `max_outputs` images are written, each
  // as a PNG file.
  //
  // InvalidArgument: another rank, number of channels or dtype, no pixel, more than 64 MiB of
  // pixels in one image, a NaN, max_outputs below 1, or an empty tag. Other errors: as Histogram.
  absl::Status Image(absl::string_view run, int64_t step, absl::string_view tag,
                     const Tensor& images, int max_outputs = 3);
  // Adds the hyperparameters with which `run` trains, as hp.hparams of TensorBoard does. The tab
  // HPARAMS then has a row for the run, with the last scalars of the run and of the runs below it.
  // (Of the empty run it finds those below it only if --logdir is above the directory.)
  //
  //   RETURN_IF_ERROR(summaries.HParams("train", coordinator.step(),
  //                                     {{"learning_rate", 0.1}, {"optimizer", "adam"}}));
  //
  // Runs with equal hyperparameters are shown as one group. TensorBoard shows the first ones that
  // it finds of a run; later ones do not replace them. InvalidArgument: there is none, a name is
  // empty, a number is not finite, or a name or a text is not UTF-8. Other errors: as Scalars.
  absl::Status HParams(absl::string_view run, int64_t step,
                       const std::map<std::string, HParam>& hparams);
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
