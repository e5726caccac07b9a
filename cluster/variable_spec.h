// What a variable is, and what may be written to one.
#ifndef DIVVY_CLUSTER_VARIABLE_SPEC_H_
#define DIVVY_CLUSTER_VARIABLE_SPEC_H_

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

// How the replicas of one worker combine what each assigns (semantics of tf.VariableAggregation).
enum class VariableAggregation { kNone, kSum, kMean, kOnlyFirstReplica };

// What a variable is. Declare it `const` at namespace scope and it is the same in every process: the coordinator creates from it, steps name it.
// A plain value, registered nowhere: the layout that the coordinator made is the truth.
struct VariableSpec {
  std::string name;  // unique in the job; [A-Za-z0-9_.-]+ joined by '/'
  Shape shape;
  Initializer initializer = Zeros();
  std::optional<Optimizer> optimizer = {};  // its slots are created with it; none: the one given to ApplyGradients or Trainer
  DType dtype = DType::kFloat32;
  VariableAggregation aggregation = VariableAggregation::kNone;
  std::optional<Partitioner> partitioner = {};  // instead of the strategy's
  operator absl::string_view() const { return name; }
};

// InvalidArgument, naming the variable and the fix: a bad name, an invalid or unknown shape, a dtype that no variable has, or an initial Tensor of
// another dtype or shape.
absl::Status Validate(const VariableSpec& spec);

// What one write does to the rows it names. Every scatter applies each occurrence of an id, kUpdate keeps the last.
enum class WriteOp : uint8_t { kAssign, kAdd, kSub, kScatterUpdate, kScatterAdd, kScatterSub, kScatterMul, kScatterDiv, kScatterMin, kScatterMax, kGradient };
absl::string_view WriteOpName(WriteOp op);  // "assign", "scatter_add", ...

}  // namespace divvy

#endif  // DIVVY_CLUSTER_VARIABLE_SPEC_H_
