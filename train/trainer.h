// The training loop most programs want.
#ifndef DIVVY_TRAIN_TRAINER_H_
#define DIVVY_TRAIN_TRAINER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "optimizers/optimizer.h"
#include "strategy/coordinator.h"
#include "strategy/warm_start.h"
#include "train/callback.h"
#include "train/model.h"
#include "train/predictions.h"

namespace divvy {

// How Fit goes about it. By name in C++20, else field by field. Options that make no sense are
// InvalidArgument from Fit, all at once.
struct FitOptions {
  int epochs = 1;  // >= 1
  // None: each record once (the source is leased), partial batches included. Given, >= 1: the next
  // epoch goes on where this one stopped, pass after pass.
  std::optional<int64_t> steps_per_epoch = {};
  std::optional<BoundDataSource> validation = {};  // after each epoch, on the workers
  std::vector<std::shared_ptr<Callback>> callbacks = {};
  // > 0: gradients of a worker's whole step, all replicas and variables together, are scaled down
  // to this norm where theirs is above it (tf.clip_by_global_norm). One that is not finite is then
  // the step's error: InvalidArgument that names a variable.
  std::optional<double> clip_norm = {};
};

// Creates a model's variables, goes on with the newest checkpoint, trains, validates, reports,
// predicts. Runs on the coordinator; one thread.
//
//   Trainer trainer(coordinator, kDigitsModel, Adam{2e-3});
//   FitOptions options;
//   options.epochs = 30;
//   options.validation = kDigits(/*training=*/false);
//   return trainer.Fit(kDigits(/*training=*/true), options).status();
class Trainer {
 public:
  // `optimizer` is for variables that name none. Keeps a copy of the model, which is a handle.
  // REQUIRES: the coordinator outlives it.
  Trainer(Coordinator& coordinator, const Model& model, Optimizer optimizer);

  // Trains for options.epochs, called again for as many more; blocks. The variables are created by
  // the first call of Fit or Evaluate, which then goes on with the newest checkpoint
  // (Coordinator::RestoreLatest): epochs that it holds, and of the one in the middle of which it
  // was made the elements that were read, are not trained again, nor validated. A program whose
  // Trainers restore so calls them as if it began, and counts in epochs over the data or in
  // steps_per_epoch, not in both; one that has called RestoreLatest itself counts itself, and Fit
  // trains all it is asked for. Returns the metrics of the last epoch: "loss" and the model's own,
  // those of the validation as "validation/loss" ... A callback may end it early: then of the epoch
  // so far. Metrics count each step once, however often it was tried. Validation counts each record
  // once, whatever the number of workers and replicas, where its source is leased (the default).
  // InvalidArgument: options that make no sense, all at once, or a source without a single example.
  // AlreadyExists: another has created a variable of the model. Errors of RestoreLatest. Otherwise
  // the first error of a step, as RunEpoch's, or of a callback.
  absl::StatusOr<std::map<std::string, double>> Fit(const BoundDataSource& data,
                                                    const FitOptions& options = {});
  // The variables whose names fit begin with their values in a checkpoint. An error of
  // WarmStart::Apply is Fit's. REQUIRES: no call of Fit or Evaluate yet.
  void StartFrom(WarmStart warm_start) { warm_start_ = std::move(warm_start); }
  // One pass over the data with the variables as they are; changes nothing. Errors as Fit.
  absl::StatusOr<std::map<std::string, double>> Evaluate(const BoundDataSource& data);

  // Runs the model over data that need no labels and gives ModelOutput::outputs: batch by batch to
  // `take`, on this thread, each element of the data once and in the order of the data (shuffle
  // nothing), whatever the number of workers and whatever dies. Blocks. Changes nothing; creates
  // and restores the variables as Fit does. Memory: what steps give is held until it is its turn,
  // some 128 batches for each replica of each worker at most. A program that runs again predicts
  // again from the front. REQUIRES: nothing else is scheduled meanwhile. InvalidArgument: a source
  // that is not leased, or a model without outputs. Else the first error of a step, or of `take`,
  // which ends it.
  //
  //   trainer.Predict(kClicks("day-9"), [&](int64_t first, const Outputs& outputs) { return
  //   file.Append(first, outputs.at("probability")); });
  absl::Status Predict(const BoundDataSource& data, const TakeOutputs& take);
  // All of them, the rows of all batches one after another: for what fits into memory. Nothing of
  // data without an element.
  absl::StatusOr<Outputs> Predict(const BoundDataSource& data);

 private:
  // What of a Fit was done before the job went on from a checkpoint.
  struct Behind {
    int epochs = 0;
    int64_t steps = 0;  // of the epoch after them, where they are counted
  };
  absl::Status Prepare();
  Behind TakeWhatIsBehind(const FitOptions& options);
  absl::Status FitEpoch(const BoundDataSource& data, const FitOptions& options,
                        int64_t steps_behind, TrainingRun& run);
  absl::StatusOr<Metrics> TrainEpoch(const BoundDataSource& data, const FitOptions& options,
                                     int64_t steps_behind, TrainingRun& run);
  absl::StatusOr<Metrics> EvaluateEpoch(const BoundDataSource& data);
  absl::Status ValidateEpoch(const FitOptions& options, TrainingRun& run);

  Coordinator& coordinator_;
  const Model model_;
  Optimizer optimizer_;
  std::optional<WarmStart> warm_start_;
  // completed
  int epochs_ = 0;
  // Of the model's variables; a call that failed half way goes on from here.
  size_t num_created_ = 0;
  bool restored_ = false;
  // The next epoch may be the rest of one that a checkpoint holds.
  bool in_an_epoch_ = false;
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_TRAINER_H_
