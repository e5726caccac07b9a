// What a step sees of a variable after its own writes, which no parameter server has yet.
#ifndef DIVVY_WORKER_CORE_STAGED_VALUES_H_
#define DIVVY_WORKER_CORE_STAGED_VALUES_H_

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/tensor.h"
#include "variables/transfer_plan.h"

namespace divvy {

// Whether the value after `writes` does not depend on the value before: one of them assigns the
// whole variable.
bool CoversVariable(absl::Span<const StagedWrite> writes);

// `base`, the result of `read` before `writes` (ignored where they cover the variable), as it is
// after them, in order. As on a ps, every occurrence of an id in a scatter counts; kScatterUpdate
// keeps the last. `base` itself is never changed. InvalidArgument: arithmetic on a dtype that has
// none (bool). REQUIRES: CheckRead and CheckWrite are OK, no write is a gradient, all are of the
// variable read.
absl::StatusOr<Tensor> AfterWrites(const VariableRead& read, Tensor base,
                                   absl::Span<const StagedWrite> writes);

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_STAGED_VALUES_H_
