// The values of a variable as a step sees them after its own staged writes, which no parameter
// server has received yet.
#ifndef DIVVY_WORKER_CORE_STAGED_VALUES_H_
#define DIVVY_WORKER_CORE_STAGED_VALUES_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/tensor.h"
#include "variables/transfer_plan.h"

namespace divvy {

// Whether the value after `writes` does not depend on the value before them: one of them assigns
// the whole variable.
bool CoversVariable(absl::Span<const StagedWrite> writes);

// The result of `read` after `writes`, which are applied in order to `base`, the result before
// them. `base` is ignored if the writes cover the variable, and is never changed. As on a ps, every
// occurrence of an id in a scatter counts, and kScatterUpdate keeps the last one. InvalidArgument:
// a write needs arithmetic on a dtype that has none (bool). REQUIRES: CheckRead and CheckWrite are
// OK, no write is a gradient, all writes are to the variable read.
absl::StatusOr<Tensor> AfterWrites(const VariableRead& read, Tensor base,
                                   absl::Span<const StagedWrite> writes);

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_STAGED_VALUES_H_
