// What a variable is.
#ifndef DIVVY_VARIABLES_VARIABLE_SPEC_H_
#define DIVVY_VARIABLES_VARIABLE_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "initializers/initializer.h"
#include "optimizers/optimizer.h"
#include "partitioners/partitioner.h"
#include "tensor/tensor.h"

namespace divvy {

// How the replicas of one worker combine what each assigns in a Run (semantics of
// tf.VariableAggregation). Gradients are another matter: ApplyGradients is told how. What several
// workers assign is not combined: steps write one after another.
enum class VariableAggregation {
  // They may not: InvalidArgument, where there are several replicas.
  kNone,
  kSum,               // of all replicas' values, in replica order
  kMean,              // the same, divided by the number of replicas
  kOnlyFirstReplica,  // replica 0's value; the others' are dropped
};

// What a variable is. Declare it `const` at namespace scope and it is the same in every process:
// the coordinator creates from it, steps name it. A plain value, registered nowhere: the layout
// that the coordinator made is the truth.
//
//   const VariableSpec kUsers{"users", {1'000'000, 64}, RandomUniform{}, RowwiseAdagrad{0.05}};
//   const VariableSpec kCount{"count", {}, Zeros(), std::nullopt, DType::kInt64};
struct VariableSpec {
  // unique in the job; [A-Za-z0-9_.-]+ joined by '/', no part "." or "..", at most 960 bytes; in
  // checkpoints, too
  std::string name;
  // fully known; rows (axis 0) are what is cut and looked up. {}: a scalar, never cut
  Shape shape;
  Initializer initializer = Zeros();
  // Its slots are created with it; none: the one given to ApplyGradients or Trainer.
  std::optional<Optimizer> optimizer = {};
  // Any that tensors hold; an optimizer, and gradients, need float32.
  DType dtype = DType::kFloat32;
  VariableAggregation aggregation = VariableAggregation::kNone;
  std::optional<Partitioner> partitioner = {};  // instead of the strategy's
  operator absl::string_view() const { return name; }
};

// InvalidArgument, naming the variable and the fix: a bad name, an invalid or unknown shape, a
// dtype that no variable has, what Validate refuses of the initializer or the optimizer, or an
// optimizer of a variable that is not float32. Pure.
absl::Status Validate(const VariableSpec& spec);

}  // namespace divvy

#endif  // DIVVY_VARIABLES_VARIABLE_SPEC_H_
