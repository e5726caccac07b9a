// Callbacks for Trainer::Fit: learning rate, best model, failed training, log.
#ifndef DIVVY_TRAIN_CALLBACKS_H_
#define DIVVY_TRAIN_CALLBACKS_H_

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "strategy/export_options.h"
#include "train/callback.h"

namespace divvy {

class FileSystem;

// Sets the factor of every optimizer's learning rate for each epoch, as Keras'
// LearningRateScheduler. The argument of `scale` is the number of epochs that this Trainer has
// completed, including those before a restart. So a restarted program continues with the correct
// factor. For a rate that depends on the step, give the optimizer a schedule (CosineDecay).
//
//   // halved every ten epochs
//   std::make_shared<LearningRateByEpoch>([](int epoch) { return std::pow(0.5, epoch / 10); })
//
// Do not combine it with ReduceLrOnPlateau, which sets the same factor. Fit returns InvalidArgument
// for a factor that is negative or not finite.
class LearningRateByEpoch : public Callback {
 public:
  explicit LearningRateByEpoch(std::function<double(int epoch)> scale);
  absl::Status OnFitBegin(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  absl::Status Set(TrainingRun& run) const;

  const std::function<double(int epoch)> scale_;
};

// The options of ReduceLrOnPlateau. Set the fields by name in C++20, else one by one.
struct PlateauOptions {
  double factor = 0.1;  // in (0, 1)
  int patience = 10;    // epochs without improvement, >= 1
  // The factor is never reduced below this; in [0, 1].
  double min_scale = 0;
  // A smaller change is not an improvement.
  double min_delta = 1e-4;
  MetricMode mode = MetricMode::kAuto;
};

// Multiplies the factor of every optimizer's learning rate by options.factor when a metric has not
// improved for options.patience epochs in a row. It repeats this after each further
// options.patience epochs without improvement, down to options.min_scale. As Keras'
// ReduceLROnPlateau without a cooldown. Each Fit begins with factor 1, also in a restarted program.
// Fit returns InvalidArgument: options out of range, a name that kAuto does not know, or a metric
// that does not exist.
//
//   std::make_shared<ReduceLrOnPlateau>("validation/loss", PlateauOptions{/*factor=*/0.5, 3})
class ReduceLrOnPlateau : public Callback {
 public:
  explicit ReduceLrOnPlateau(std::string metric, const PlateauOptions& options = {});
  absl::Status OnFitBegin(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  internal::BestMetric best_;
  const PlateauOptions options_;
  double scale_ = 1;
  int waited_ = 0;  // epochs without improvement
};

// Ends Fit, with OK, when a metric is NaN or infinite. It checks at each report interval and at the
// end of each epoch. As Keras' TerminateOnNaN. The metrics that Fit returns show the value.
//
// The variables are left as they are, and the checkpoint at the end of the job contains them. So
// keep good variables with SaveBest, and remove that checkpoint before running the program again.
// Fit returns InvalidArgument if an epoch has no such metric.
class TerminateOnNan : public Callback {
 public:
  explicit TerminateOnNan(std::string metric = "loss");
  absl::Status OnReport(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  const std::string metric_;
};

// Exports the variables (Coordinator::Export) at the end of each epoch in which a metric is the
// best so far. As Keras' ModelCheckpoint with save_best_only. Fit waits for the export.
//
// The best value is stored in "<path>.best". A Trainer that resumes after epochs of an earlier run
// continues with that value; a Trainer without completed epochs starts without a best value. If the
// process is killed between the export and the write of the value, the file keeps the value of the
// previously exported model.
//
// Fit returns InvalidArgument for a name that kAuto does not know or a metric that does not exist.
// Errors of Export and of the file system end Fit.
//
//   std::make_shared<SaveBest>("best.safetensors", "validation/accuracy")
class SaveBest : public Callback {
 public:
  SaveBest(std::string path, std::string metric, MetricMode mode = MetricMode::kAuto,
           const ExportOptions& options = {});
  // REQUIRES: `files` outlives the callback.
  SaveBest(std::string path, std::string metric, MetricMode mode, const ExportOptions& options,
           FileSystem& files);
  absl::Status OnFitBegin(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  std::string FigureFile() const { return path_ + ".best"; }

  const std::string path_;
  const ExportOptions options_;
  FileSystem& files_;
  internal::BestMetric best_;
};

// Writes a CSV line for each epoch: epoch, step, and the metrics in name order, below a header line
// with the names. As Keras' CSVLogger.
//
// The file is replaced as a whole, so it is never incomplete. A Trainer that has completed epochs
// (a resumed job, or a second Fit) keeps their lines; otherwise the lines of an earlier log are
// removed. Missing directories are created.
//
// Before it trains, Fit returns the file system's error if the file cannot be written, and
// InvalidArgument if the file exists but is not such a log. Later errors are only logged, and
// training continues.
//
//   epoch,step,loss,validation/loss
//   1,250,0.693,0.541
class CsvLogger : public Callback {
 public:
  explicit CsvLogger(std::string path);
  // REQUIRES: `files` outlives the callback.
  CsvLogger(std::string path, FileSystem& files);
  absl::Status OnFitBegin(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  // One epoch: the text of each column.
  using Row = std::map<std::string, std::string>;
  absl::Status Load(int epochs);
  std::string Text() const;

  const std::string path_;
  FileSystem& files_;
  std::map<int, Row> rows_;  // by epoch
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_CALLBACKS_H_
