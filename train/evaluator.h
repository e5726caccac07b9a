// The evaluator task: it evaluates a job's checkpoints while the job trains.
#ifndef DIVVY_TRAIN_EVALUATOR_H_
#define DIVVY_TRAIN_EVALUATOR_H_

#include <functional>

#include "absl/status/status.h"
#include "data/dataset.h"
#include "strategy/coordinator.h"
#include "train/model.h"

namespace divvy {

// The argument of a program's Evaluate function, in the process whose task is `evaluator`:
// TensorFlow's side-car evaluator. That process is not connected to the cluster, and no task waits
// for it. It watches --checkpoint_dir and restores each checkpoint into variables of its own.
//
//   absl::Status Evaluate(Evaluator& evaluator) {
//     return evaluator.Watch(kDigitsModel, kDigits(/*training=*/false));
//   }
//   DIVVY_PROGRAM(Train, Evaluate);
//
// It first evaluates the checkpoint that is the newest at its start, then each new checkpoint,
// oldest first, and always the job's final checkpoint. A checkpoint that is removed before its turn
// (--keep) is skipped, and so is a damaged checkpoint, unless it is the final one.
//
// Coordinator::Report writes the scores to the log and to event files in the run "evaluator" of
// --tensorboard_dir, at the checkpoint's training step.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // Runs one pass of the model's evaluation step over the data for each checkpoint. The result is
  // the same as that of Trainer's validation at that step. Blocks until the job has ended and its
  // final checkpoint is evaluated. NotFound: the checkpoint lacks a variable of the model.
  // InvalidArgument: the data has no examples. Otherwise as the other Watch.
  absl::Status Watch(const Model& model, const BoundDataSource& data);

  // Calls `score` for each checkpoint. `restored` is the coordinator of a cluster in this process
  // (--ps, --workers) that holds the checkpoint's variables, without the optimizers' slots;
  // restored.step() is the training step. Values that `score` writes to the variables are
  // discarded. Blocks until the job has ended and its final checkpoint is evaluated. The first
  // error of `score` ends the call. DataLoss: the job has ended, and its final checkpoint is
  // damaged. Otherwise the file system's error.
  virtual absl::Status Watch(std::function<absl::Status(Coordinator& restored)> score) = 0;
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_EVALUATOR_H_
