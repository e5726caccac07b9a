// Looking on while a Trainer trains, and ending it early.
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

// A training under way, as callbacks see it. Used on the thread of Fit only, during the call.
class TrainingRun {
 public:
  // Epochs that this Trainer has completed, all its Fits together: 0 during the first, 1 at its
  // end.
  int epoch() const { return epoch_; }
  int64_t step() const { return coordinator_.step(); }
  // In OnReport the means over the last report interval, in OnEpochEnd those of the whole epoch
  // ("loss", "accuracy", ...); and of the last validation as "validation/loss" ... Empty before the
  // first step.
  const std::map<std::string, double>& metrics() const { return metrics_; }
  // What Fit was called with and on how large a cluster, for people: "model", "optimizer", "data",
  // "epochs", "workers", ... and a text for each.
  const std::map<std::string, std::string>& configuration() const { return configuration_; }
  // Ends Fit, which returns OK, when the callbacks that are being called have returned. In the
  // middle of an epoch, the steps in flight are still finished, and nothing is validated. `reason`:
  // for the log; the last one counts.
  void Stop(std::string reason) { stop_reason_ = std::move(reason); }
  // For SetLearningRateScale and Report, say. Its blocking calls (RunEpoch, Join, ...) are not for
  // callbacks.
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

// Called on the thread of Fit, one after another in the order of FitOptions; an error ends Fit with
// it: the callbacks behind it are not called. They may block, and Fit waits: while steps run
// (OnReport) these go on. Nothing is called for epochs that the job had behind it when the program
// began.
//
//   class Halve : public Callback {
//     absl::Status OnEpochEnd(TrainingRun& run) override {
//       run.coordinator().SetLearningRateScale(std::pow(0.5, run.epoch()));
//       return absl::OkStatus();
//     }
//   };
class Callback {
 public:
  virtual ~Callback() = default;
  // Before the first step of each Fit: forget what was seen.
  virtual absl::Status OnFitBegin(TrainingRun&) { return absl::OkStatus(); }
  // Every --report_every, while the steps of an epoch run.
  virtual absl::Status OnReport(TrainingRun&) { return absl::OkStatus(); }
  // After validation; not of an epoch that was stopped in its middle.
  virtual absl::Status OnEpochEnd(TrainingRun&) { return absl::OkStatus(); }
};

// Which way a metric improves.
enum class MetricMode {
  // By the words of its name's last part ("validation/top5_accuracy": top5, accuracy) among those
  // that are known: it falls with loss, error, rmse, mse, mae, mape, msle, perplexity, nll,
  // entropy,
  // divergence or hinge, and rises with accuracy, acc, auc, precision, recall, f1, ndcg, map, mrr,
  // hits, iou, dice, bleu, cosine or r2.
  kAuto,
  kMin,  // it is the better the smaller it is
  kMax,
};

namespace internal {

// The best value of a metric so far, for callbacks that watch one. Used on the thread of Fit.
class BestMetric {
 public:
  // `callback`: begins the errors.
  BestMetric(std::string callback, std::string metric, double min_delta, MetricMode mode);
  // Forgets what was seen. InvalidArgument, all at once: `problems` of the callback's own, a
  // min_delta that is below 0 or no number, and a name that kAuto does not know.
  absl::Status Begin(std::vector<std::string> problems);
  // Looks at the metric of an epoch that has ended: whether it is beyond the best by more than
  // min_delta; then it is the best. NaN never is. InvalidArgument: there is no such metric; lists
  // those that are.
  absl::StatusOr<bool> Improves(const TrainingRun& run);
  const std::string& metric() const { return metric_; }
  const std::optional<double>& best() const { return best_; }
  void set_best(double best) { best_ = best; }

 private:
  const std::string callback_;
  const std::string metric_;
  const double min_delta_;
  const MetricMode mode_;  // kAuto: the name says nothing
  std::optional<double> best_;
};

}  // namespace internal

// Ends Fit when a metric has not improved for `patience` epochs in a row: when it has not fallen or
// risen (Mode) by more than `min_delta` beyond the best seen. NaN is no improvement. Patience 0 is
// as good as 1; the first epoch of a Fit never ends it. As Keras' EarlyStopping, without restoring
// the best weights. For one Fit at a time.
//
//   options.callbacks = {std::make_shared<EarlyStopping>("validation/loss", /*patience=*/3)};
class EarlyStopping : public Callback {
 public:
  using Mode = MetricMode;
  // Fit gives InvalidArgument, before it trains: a name that kAuto does not know, patience < 0, or
  // min_delta < 0 or no number; and a metric that is not there at the end of an epoch (the message
  // lists those that are).
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
