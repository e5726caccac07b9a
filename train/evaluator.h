// The evaluator task: scores the checkpoints of a job while it trains.
#ifndef DIVVY_TRAIN_EVALUATOR_H_
#define DIVVY_TRAIN_EVALUATOR_H_

#include <functional>

#include "absl/status/status.h"
#include "data/dataset.h"
#include "strategy/coordinator.h"
#include "train/model.h"

namespace divvy {

// What a program's Evaluate is given, in the process whose task is `evaluator`: TensorFlow's
// side-car evaluator. That process is not connected to the cluster and nobody waits for it: it
// watches --checkpoint_dir, and restores what it finds there into variables of its own.
//
//   absl::Status Evaluate(Evaluator& evaluator) { return evaluator.Watch(kDigitsModel,
//   kDigits(/*training=*/false)); } DIVVY_PROGRAM(Train, Evaluate);
//
// Which checkpoints: the newest that is there at the beginning, then each new one, oldest first;
// the final one of the job always. One that is removed before its turn (--keep) is passed over, and
// so is a damaged one, unless it is the final one.
//
// Scores go, by Coordinator::Report, to the log and to event files below the run "evaluator" of
// --tensorboard_dir, at the checkpoint's training step.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // One pass of the model's evaluation step over the data for each checkpoint: what Trainer's
  // validation would have said at that step. Blocks until the job is over and its final checkpoint
  // is scored. NotFound: the checkpoint has not got a variable of the model. InvalidArgument: no
  // examples. Else as below.
  absl::Status Watch(const Model& model, const BoundDataSource& data);

  // Calls `score` for each checkpoint, with the coordinator of a cluster in this process (--ps,
  // --workers) that holds the checkpoint's variables, without the optimizers' slots:
  // restored.step() is the training step. What `score` writes into them is nobody's. Blocks as
  // above. The first error of `score` ends it. DataLoss: the job is over, and its final checkpoint
  // is damaged. Else the disk's error.
  virtual absl::Status Watch(std::function<absl::Status(Coordinator& restored)> score) = 0;
};

}  // namespace divvy

#endif  // DIVVY_TRAIN_EVALUATOR_H_
