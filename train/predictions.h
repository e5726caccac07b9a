// Predictions of a model, in the order of the data.
#ifndef DIVVY_TRAIN_PREDICTIONS_H_
#define DIVVY_TRAIN_PREDICTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "data/dataset.h"
#include "strategy/coordinator.h"
#include "tensor/tensor.h"
#include "train/model.h"

namespace divvy {

// The outputs of one batch by the names of ModelOutput::outputs; each is [rows, ...], on the CPU.
using Outputs = std::map<std::string, Tensor>;
// Receives the outputs of a batch. `first`: the number of rows in all earlier batches. An error
// ends the prediction.
using TakeOutputs = std::function<absl::Status(int64_t first, const Outputs& outputs)>;

// Runs the model over data with the variables that the coordinator has: Keras' model.predict. Use
// it in an Evaluator's score, or in a program that has created the variables itself. (A Trainer
// would create and restore them.) Order, memory and errors are those of Trainer::Predict. Also
// NotFound: a variable of the model does not exist. Both functions block for at most `timeout`, and
// change no variable.
//
//   absl::Status Evaluate(Evaluator& evaluator) {
//     return evaluator.Watch([](Coordinator& restored) -> absl::Status {
//       ASSIGN_OR_RETURN(const Outputs outputs, Predict(restored, kModel, kUnlabelled()));
//       return Write(restored.step(), outputs.at("probability"));
//     });
//   }
absl::Status Predict(Coordinator& coordinator, const Model& model, const BoundDataSource& data,
                     const TakeOutputs& take, absl::Duration timeout = absl::InfiniteDuration());
// Returns all outputs, with the rows of all batches concatenated, for results that fit into memory.
// Empty if the data has no element. Also InvalidArgument: batches whose outputs differ in names, in
// dtypes or in the shape of a row.
absl::StatusOr<Outputs> Predict(Coordinator& coordinator, const Model& model,
                                const BoundDataSource& data,
                                absl::Duration timeout = absl::InfiniteDuration());

namespace internal {
// Concatenates the rows of all parts. Empty if there are no parts. InvalidArgument: parts that
// differ in names, in dtypes or in the shape of a row.
absl::StatusOr<Outputs> JoinOutputs(const std::vector<Outputs>& parts);
}  // namespace internal

}  // namespace divvy

#endif  // DIVVY_TRAIN_PREDICTIONS_H_
