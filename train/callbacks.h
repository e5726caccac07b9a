// Callbacks for Trainer::Fit: the learning rate, the best model, a training that has failed, a log.
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
// LearningRateScheduler. `scale` is given the epochs that this Trainer has completed, those before
// a restart included, so a program that runs again goes on with the right factor. For a rate that
// depends on the step, give the optimizer a schedule (CosineDecay).
//
//   // halved every ten epochs
//   std::make_shared<LearningRateByEpoch>([](int epoch) { return std::pow(0.5, epoch / 10); })
//
// Not beside ReduceOnPlateau: both set the same factor. Fit gives InvalidArgument: a factor that is
// below 0 or no number.
class LearningRateByEpoch : public Callback {
 public:
  explicit LearningRateByEpoch(std::function<double(int epoch)> scale);
  absl::Status OnFitBegin(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  absl::Status Set(TrainingRun& run) const;

  const std::function<double(int epoch)> scale_;
};

// By name in C++20, else field by field.
struct PlateauOptions {
  double factor = 0.1;  // in (0, 1)
  int patience = 10;    // epochs without improvement, >= 1
  double min_scale = 0;
  double min_delta = 1e-4;  // what is less is no improvement
  MetricMode mode = MetricMode::kAuto;
};

// Multiplies the factor of every optimizer's learning rate by options.factor when a metric has not
// improved for options.patience epochs in a row, and again after as many more, down to
// options.min_scale. As Keras' ReduceLROnPlateau without a cooldown. Each Fit begins with factor 1,
// and so does a program that runs again. Fit gives InvalidArgument: options out of their range, a
// name that kAuto does not know, or a metric that is not there.
//
//   std::make_shared<ReduceOnPlateau>("validation/loss", PlateauOptions{/*factor=*/0.5, 3})
class ReduceOnPlateau : public Callback {
 public:
  explicit ReduceOnPlateau(std::string metric, const PlateauOptions& options = {});
  absl::Status OnFitBegin(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  internal::BestMetric best_;
  const PlateauOptions options_;
  double scale_ = 1;
  int waited_ = 0;  // epochs without improvement
};

// Ends Fit, which returns OK, when a metric is NaN or infinite: seen at each report interval and at
// each epoch's end. As Keras' TerminateOnNaN. The metrics that Fit returns say so. The variables
// are as they are: the checkpoint of the job's end holds them, too, so keep the good ones with
// SaveBest, and remove that checkpoint before the program runs again. Fit gives InvalidArgument: an
// epoch has no such metric.
class StopOnNan : public Callback {
 public:
  explicit StopOnNan(std::string metric = "loss");
  absl::Status OnReport(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  const std::string metric_;
};

// Exports the variables (Coordinator::Export) at the end of each epoch in which a metric is the
// best so far. Its figure stands in "<path>.best": a Trainer that goes on after epochs of an
// earlier life goes on from that figure, a new one begins anew. A process that is killed between
// the export and its figure leaves the figure of the model before. As Keras' ModelCheckpoint with
// save_best_only. Fit waits for the export. Fit gives InvalidArgument: a name that kAuto does not
// know, or a metric that is not there. Else the errors of Export and of the file system, which end
// Fit.
//
//   std::make_shared<SaveBest>("best.safetensors", "validation/accuracy")
class SaveBest : public Callback {
 public:
  SaveBest(std::string path, std::string metric, MetricMode mode = MetricMode::kAuto,
           const ExportOptions& options = {});
  // REQUIRES: `files` outlives it.
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

// A line of text for each epoch: epoch, step, and the metrics in the order of their names, with a
// line of names in front. As Keras' CSVLogger. The file is replaced as a whole, so it is never
// torn. A Trainer that has epochs behind it (a job that goes on, or a second Fit) keeps their
// lines; else the lines of an earlier log are gone. Directories are made. Fit gives, at its
// beginning, the file system's error where nothing can be written, and InvalidArgument: the file is
// there and is no such log. Later errors are logged and training goes on.
//
//   epoch,step,loss,validation/loss
//   1,250,0.693,0.541
class CsvLog : public Callback {
 public:
  explicit CsvLog(std::string path);
  // REQUIRES: `files` outlives it.
  CsvLog(std::string path, FileSystem& files);
  absl::Status OnFitBegin(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  // Of one epoch: its columns' texts.
  using Row = std::map<std::string, std::string>;
  absl::Status Load(int epochs);
  std::string Text() const;

  const std::string path_;
  FileSystem& files_;
  std::map<int, Row> rows_;  // by epoch
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_CALLBACKS_H_
