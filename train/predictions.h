// What a model makes of data, in the data's order.
#ifndef DIVVY_TRAIN_PREDICTIONS_H_
#define DIVVY_TRAIN_PREDICTIONS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "strategy/coordinator.h"
#include "tensor/tensor.h"
#include "train/model.h"

namespace divvy {

// Of one batch: [rows, ...] each, on the CPU, by the names of ModelOutput::outputs.
using Outputs = std::map<std::string, Tensor>;
// `first`: how many rows came before this batch.
using TakeOutputs = std::function<absl::Status(int64_t first, const Outputs& outputs)>;

// Trainer::Predict, for a model whose variables exist.
absl::Status PredictInOrder(Coordinator& coordinator, const Model& model,
                            const BoundDataSource& data, const TakeOutputs& take);

// The rows of all parts, one after another. Nothing of no parts. InvalidArgument: parts that differ
// in names, dtypes or in the shape of a row.
absl::StatusOr<Outputs> JoinOutputs(const std::vector<Outputs>& parts);

}  // namespace divvy

#endif  // DIVVY_TRAIN_PREDICTIONS_H_
