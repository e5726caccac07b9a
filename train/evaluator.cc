#include "train/evaluator.h"

#include "base/status_macros.h"
#include "train/examples_seen.h"

namespace divvy {

absl::Status Evaluator::Watch(const Model& model, const BoundDataSource& data) {
  return Watch([&](Coordinator& restored) -> absl::Status {
    ASSIGN_OR_RETURN(const Metrics metrics,
                     restored.RunEpoch(model.evaluate_step(), data, model.name()));
    RETURN_IF_ERROR(CheckExamplesSeen(metrics, data));
    return restored.Report("evaluator", restored.step(), metrics);
  });
}

}  // namespace divvy
