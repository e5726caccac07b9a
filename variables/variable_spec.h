// The declaration of a variable.
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
#include "variables/table_options.h"

namespace divvy {

// How the replicas of one worker combine the values that they assign in a Run (semantics of
// tf.VariableAggregation). It does not concern gradients: ApplyGradients has an argument for them.
// Assigns of several workers are not combined: the steps write one after another.
enum class VariableAggregation {
  // Replicas may not assign: InvalidArgument if the worker has several replicas.
  kNone,
  // the sum of all replicas' values, in replica order
  kSum,
  // the sum divided by the number of replicas
  kMean,
  // replica 0's value; the others are dropped
  kOnlyFirstReplica,
};

// How the values of a float32 variable travel between its parameter servers and workers. The
// servers always keep float32.
enum class WireFormat {
  kExact,
  // Half of the bytes. What a step reads is rounded to bfloat16, to nearest. So is a gradient
  // without ids that a step applies. Assigns, additions, scatters and gradients of rows travel as
  // they are; so does all that the program reads and writes outside of steps, and so do
  // checkpoints. Do not use it for a variable that a step reads and assigns again, such as a count:
  // each time it loses what bfloat16 cannot hold, and 256 + 1 stays 256.
  kBFloat16,
  // As kBFloat16, but a gradient is rounded up or down at random, so that it is right on average.
  // Every attempt of a step draws the same.
  kBFloat16Random,
};

// The declaration of a variable. If it is `const` at namespace scope, it is the same in every
// process: the coordinator creates the variable from it, and steps name the variable by it. A plain
// value, registered nowhere: what counts for a job is the layout that its coordinator made.
//
//   const VariableSpec kUsers{"users", {1'000'000, 64}, RandomUniform{}, RowwiseAdagrad{0.05}};
//   const VariableSpec kCount{"count", {}, Zeros(), std::nullopt, DType::kInt64};
struct VariableSpec {
  // Unique in the job; checkpoints use the same name. Parts of [A-Za-z0-9_.-]+ joined by '/', no
  // part "." or "..", at most 960 bytes.
  std::string name;
  // Fully known. The variable is cut and looked up by rows (axis 0). {}: a scalar, never cut.
  Shape shape;
  Initializer initializer = Zeros();
  // Its slots are created with the variable. None: ApplyGradients or Trainer names the optimizer.
  std::optional<Optimizer> optimizer = {};
  // Any dtype that a tensor can hold. Optimizers and gradients need float32.
  DType dtype = DType::kFloat32;
  VariableAggregation aggregation = VariableAggregation::kNone;
  // used in place of the strategy's partitioner
  std::optional<Partitioner> partitioner = {};
  // Other formats than kExact need a float32 variable, and not a table.
  WireFormat wire = WireFormat::kExact;
  // If set, the variable is a dynamic table of float32 rows: its shape is {kTableBuckets, width},
  // because the buckets of its keys are cut and placed as rows are. Its ids are keys, of any value.
  // Only its own optimizer applies gradients to it, and it is never read or written as a whole.
  std::optional<TableOptions> table = {};
  operator absl::string_view() const { return name; }
};

// InvalidArgument, naming the variable and the fix: a bad name, an invalid or unknown shape, a
// dtype that no variable can have, a wire format that the dtype does not have, an initializer or
// optimizer that its own Validate refuses, an optimizer for a variable that is not float32, or a
// table with options, an initializer, a shape or a dtype that no table can have. Pure.
absl::Status Validate(const VariableSpec& spec);

}  // namespace divvy

#endif  // DIVVY_VARIABLES_VARIABLE_SPEC_H_
