// The training loop that most programs need.
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
#include "absl/time/time.h"
#include "data/dataset.h"
#include "optimizers/optimizer.h"
#include "strategy/coordinator.h"
#include "strategy/warm_start.h"
#include "train/callback.h"
#include "train/model.h"
#include "train/predictions.h"

namespace divvy {

// The options of Fit. Set the fields by name in C++20, else one by one. Fit reports all invalid
// options at once, as InvalidArgument.
struct FitOptions {
  int epochs = 1;  // >= 1
  // None: an epoch is one pass, which visits each record once if the source is leased, partial
  // batches included. A number, >= 1: an epoch has this many steps, and the next epoch continues in
  // the data where the previous one stopped, pass after pass.
  std::optional<int64_t> steps_per_epoch = {};
  // Validate on this data after each epoch, on the workers.
  std::optional<BoundDataSource> validation = {};
  // Called in this order (train/callback.h).
  std::vector<std::shared_ptr<Callback>> callbacks = {};
  // > 0: limits the norm of a step's gradients, over all replicas of the worker and all variables
  // together; larger gradients are scaled down to it (tf.clip_by_global_norm). A gradient that is
  // not finite then fails the step with InvalidArgument, which names a variable.
  std::optional<double> clip_norm = {};
  // The longest time that Fit may take. A callback is not interrupted.
  absl::Duration timeout = absl::InfiniteDuration();
};

// Trains a model: creates its variables, resumes from the newest checkpoint, trains, validates,
// reports and predicts. Use it on the coordinator. Not thread-safe.
//
//   Trainer trainer(coordinator, kDigitsModel, Adam{2e-3});
//   FitOptions options;
//   options.epochs = 30;
//   options.validation = kDigits(/*training=*/false);
//   return trainer.Fit(kDigits(/*training=*/true), options).status();
class Trainer {
 public:
  // `optimizer` is for variables whose specs name none. The Trainer keeps a copy of the model,
  // which is a handle. REQUIRES: the coordinator outlives the Trainer.
  Trainer(Coordinator& coordinator, const Model& model, Optimizer optimizer);

  // Trains for options.epochs; another call trains for that many more epochs. Blocks. Returns the
  // metrics of the last epoch: "loss" and the model's own metrics, and the metrics of the
  // validation as "validation/loss" and so on. If a callback ended the epoch early, the metrics
  // cover the epoch so far.
  //
  // Resuming. The first call of Fit or Evaluate creates the variables and restores the newest
  // checkpoint (Coordinator::RestoreLatest). Fit then skips what the checkpoint contains: complete
  // epochs with their validation, and the elements that a partial epoch has read. If the checkpoint
  // contains all epochs, Fit only validates. To resume in this way, a restarted program must make
  // the same calls as before, and measure epochs either in passes over the data or in
  // steps_per_epoch, not both. If the program has called RestoreLatest itself, Fit skips nothing
  // and trains for options.epochs: set them to the epochs that remain.
  //
  // Counting. Metrics count each step once, however many attempts it took. Validation counts each
  // record once, with any number of workers and replicas, if its source is leased (the default).
  //
  //   InvalidArgument  invalid options, all at once; or a source without a single example
  //   AlreadyExists    the program has already created a variable of the model; let the Trainer
  //                    create them
  //   DeadlineExceeded options.timeout passed first. The complete epochs count. The epoch that was
  //                    running does not count, but its steps that succeeded keep their effect (as
  //                    RunEpoch says). Call Fit again for the remaining epochs
  //   others           errors of RestoreLatest, the first error of a step (as RunEpoch), or a
  //                    callback's error
  absl::StatusOr<std::map<std::string, double>> Fit(const BoundDataSource& data,
                                                    const FitOptions& options = {});
  // Each variable whose name matches begins with the checkpoint's value, unless Fit restores it
  // from this job's own checkpoint. Fit returns the errors of WarmStart::Apply. REQUIRES: Fit and
  // Evaluate have not been called yet.
  void StartFrom(WarmStart warm_start) { warm_start_ = std::move(warm_start); }
  // Makes one pass over the data with the current variables, and returns the metrics. Changes no
  // variable. Blocks for at most `timeout`. Creates and restores the variables as Fit does. Errors:
  // as Fit.
  absl::StatusOr<std::map<std::string, double>> Evaluate(
      const BoundDataSource& data, absl::Duration timeout = absl::InfiniteDuration());

  // Runs the model over data, which needs no labels, and passes ModelOutput::outputs to `take`,
  // batch by batch, on this thread. `take` gets each element once, in the order of the data (so do
  // not shuffle), with any number of workers and whatever tasks are lost; its first argument is the
  // number of elements before them. Blocks for at most
  // `timeout`, and for what `take` does. Changes no variable; creates and restores the variables as
  // Fit does.
  //
  // Memory: results that are early are kept until their turn, about 128 batches at most for each
  // replica of each worker. A restarted program predicts from the beginning again. REQUIRES:
  // nothing else is scheduled meanwhile. InvalidArgument: a source that is not leased, or a model
  // without outputs. DeadlineExceeded: `take` has got a part of the outputs. Another call passes
  // all of them again. Otherwise the first error of a step, or of `take`, which ends the call.
  //
  //   trainer.Predict(kClicks("day-9"), [&](int64_t first, const Outputs& outputs) {
  //     return file.Append(first, outputs.at("probability"));
  //   });
  absl::Status Predict(const BoundDataSource& data, const TakeOutputs& take,
                       absl::Duration timeout = absl::InfiniteDuration());
  // Returns all outputs, with the rows of all batches concatenated, for results that fit into
  // memory. Empty if the data has no element.
  absl::StatusOr<Outputs> Predict(const BoundDataSource& data,
                                  absl::Duration timeout = absl::InfiniteDuration());

 private:
  // The part of a Fit that a restored checkpoint already contains.
  struct Behind {
    int epochs = 0;
    // The steps of the next, partial epoch, if epochs are measured in steps.
    int64_t steps = 0;
  };
  // `end`, here and below: the time of Clock::Real() at which the call's timeout ends.
  absl::Status Prepare(absl::Duration end);
  Behind TakeWhatIsBehind(const FitOptions& options);
  absl::Status FitEpoch(const BoundDataSource& data, const FitOptions& options,
                        int64_t steps_behind, absl::Duration end, TrainingRun& run);
  absl::StatusOr<Metrics> TrainEpoch(const BoundDataSource& data, const FitOptions& options,
                                     int64_t steps_behind, absl::Duration end, TrainingRun& run);
  absl::StatusOr<Metrics> EvaluateEpoch(const BoundDataSource& data, absl::Duration end);
  absl::Status ValidateEpoch(const FitOptions& options, absl::Duration end, TrainingRun& run);

  Coordinator& coordinator_;
  const Model model_;
  Optimizer optimizer_;
  std::optional<WarmStart> warm_start_;
  // Completed epochs.
  int epochs_ = 0;
  // The number of the model's variables that exist. The call after a failed one continues here.
  size_t num_created_ = 0;
  bool restored_ = false;
  // The next epoch may be the rest of an epoch that a checkpoint contains partly.
  bool in_an_epoch_ = false;
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_TRAINER_H_
