// Callbacks: they observe a Trainer and can end the training early.
#ifndef DIVVY_TRAIN_CALLBACK_H_
#define DIVVY_TRAIN_CALLBACK_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "strategy/coordinator.h"

namespace divvy {

// The running training, as callbacks see it. Use it only on the thread of Fit, during a callback.
class TrainingRun {
 public:
  // Epochs that this Trainer has completed, over all its Fits: 0 during the first epoch, 1 at its
  // end.
  int epoch() const { return epoch_; }
  // Training steps that the job has committed (Coordinator::step).
  int64_t step() const { return coordinator_.step(); }
  // Metrics by name ("loss", "accuracy", ...). In OnReport they are means over the last report
  // interval, in OnEpochEnd over the whole epoch. The results of the last validation are included
  // as "validation/loss" and so on. Empty before the first step.
  const std::map<std::string, double>& metrics() const { return metrics_; }
  // The arguments of Fit and the size of the cluster, as text to be displayed: "model",
  // "optimizer", "data", "epochs", "workers", ...
  const std::map<std::string, std::string>& configuration() const { return configuration_; }
  // Ends Fit with OK, after all callbacks of the current event have run. If an epoch is running,
  // the steps in flight finish first, and no validation follows. The `reason` of the last call is
  // logged. Does not block.
  void Stop(std::string reason) { stop_reason_ = std::move(reason); }
  // For calls such as SetLearningRateScale and Report. Callbacks must not make its blocking calls
  // (RunEpoch, Join, ...).
  Coordinator& coordinator() { return coordinator_; }

 private:
  friend class Trainer;
  TrainingRun(Coordinator& coordinator, int epoch, std::map<std::string, std::string> configuration)
      : coordinator_(coordinator), configuration_(std::move(configuration)), epoch_(epoch) {}
  bool stopped() const { return stop_reason_.has_value(); }

  Coordinator& coordinator_;
  const std::map<std::string, std::string> configuration_;
  int epoch_;
  std::map<std::string, double> metrics_;
  std::optional<std::string> stop_reason_;
};

// A callback of Trainer::Fit. Fit calls its callbacks on its own thread, one after another in the
// order of FitOptions. An error of a callback ends Fit with that error, and the remaining callbacks
// are not called. A callback may block: Fit waits for it, but in OnReport the steps keep running.
// Epochs that were completed before the program started do not call callbacks.
//
//   // The factor is 1 whenever the program starts, so OnFitBegin sets it too.
//   class Halve : public Callback {
//     absl::Status OnFitBegin(TrainingRun& run) override { return Set(run); }
//     absl::Status OnEpochEnd(TrainingRun& run) override { return Set(run); }
//     absl::Status Set(TrainingRun& run) {
//       run.coordinator().SetLearningRateScale(std::pow(0.5, run.epoch()));
//       return absl::OkStatus();
//     }
//   };
class Callback {
 public:
  virtual ~Callback() = default;
  // Called before the first step of each Fit. Reset the callback's state here.
  virtual absl::Status OnFitBegin(TrainingRun&) { return absl::OkStatus(); }
  // Called every --report_every while the steps of an epoch run.
  virtual absl::Status OnReport(TrainingRun&) { return absl::OkStatus(); }
  // Called at the end of an epoch, after validation; not for an epoch that was stopped early.
  virtual absl::Status OnEpochEnd(TrainingRun&) { return absl::OkStatus(); }
};

// The direction in which a metric improves.
enum class MetricMode {
  // Decided by the words in the last part of the metric's name ("validation/top5_accuracy" has the
  // words top5 and accuracy). Lower is better: loss, error, rmse, mse, mae, mape, msle, perplexity,
  // nll, entropy, divergence and hinge. Higher is better: accuracy, acc, auc, precision, recall,
  // f1, ndcg, map, mrr, hits, iou, dice, bleu, cosine and r2.
  kAuto,
  // Lower is better.
  kMin,
  // Higher is better.
  kMax,
};

namespace internal {

// The best value of a metric so far, for callbacks that watch a metric. Use it on the thread of Fit
// only.
class BestMetric {
 public:
  // Error messages begin with `callback`.
  BestMetric(std::string callback, std::string metric, double min_delta, MetricMode mode);
  // Forgets the best value. InvalidArgument, with all problems at once: the callback's own
  // `problems`, a min_delta that is negative or NaN, and a name that kAuto does not know.
  absl::Status Begin(std::vector<std::string> problems);
  // Returns whether the metric of the epoch that has just ended is better than the best by more
  // than min_delta. If so, it becomes the best. NaN is never better. InvalidArgument: no such
  // metric; the message lists the existing ones.
  absl::StatusOr<bool> Improves(const TrainingRun& run);
  const std::string& metric() const { return metric_; }
  const std::optional<double>& best() const { return best_; }
  void set_best(double best) { best_ = best; }

 private:
  const std::string callback_;
  const std::string metric_;
  const double min_delta_;
  const MetricMode mode_;  // kAuto: it does not follow from the name
  std::optional<double> best_;
};

}  // namespace internal

// Ends Fit when a metric has not improved for `patience` epochs in a row. An improvement is a
// change by more than `min_delta` in the direction of Mode, compared with the best value so far.
// NaN is no improvement. Patience 0 is the same as 1. The first epoch of a Fit never ends it. As
// Keras' EarlyStopping, but without restoring the best weights. Use one object in one Fit at a
// time.
//
//   options.callbacks = {std::make_shared<EarlyStopping>("validation/loss", /*patience=*/3)};
class EarlyStopping : public Callback {
 public:
  using Mode = MetricMode;
  // Fit returns InvalidArgument before it trains if kAuto does not know the name, if patience is
  // negative, or if min_delta is negative or NaN. At the end of an epoch it returns InvalidArgument
  // if the metric does not exist; the message lists the existing ones.
  EarlyStopping(std::string metric, int patience, double min_delta = 0, Mode mode = Mode::kAuto);
  absl::Status OnFitBegin(TrainingRun& run) override;
  absl::Status OnEpochEnd(TrainingRun& run) override;

 private:
  internal::BestMetric best_;
  const int patience_;
  int epochs_ = 0;
  int waited_ = 0;  // epochs without improvement
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_CALLBACK_H_
