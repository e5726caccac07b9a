// Helpers for new tensors on the device of others, for operations and lookups. Private to ops/.
#ifndef DIVVY_OPS_TENSORS_H_
#define DIVVY_OPS_TENSORS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// A new tensor on the device of `like`, with its dtype.
absl::StatusOr<Tensor> NewLike(const Tensor& like);
absl::StatusOr<Tensor> NewLike(const Tensor& like, Shape shape);
// x converted to `dtype`; x itself if it has it already. `backend` is x's.
absl::StatusOr<Tensor> CastTo(const Backend& backend, const Tensor& x, DType dtype);
// Checks that arithmetic takes x: float32 and float64, on a GPU also float16 and bfloat16.
// Otherwise InvalidArgument; the message begins with `what`.
absl::Status CheckComputedWith(absl::string_view what, const Tensor& x);
// The dtype in which long sums are computed: float32 for float16 and bfloat16 (with which the CPU
// does not compute), otherwise `dtype` itself.
DType SummedIn(DType dtype);

// Ids of any shape and integer dtype as int64 [n]. InvalidArgument: they are not integers; the
// message names the operation.
absl::StatusOr<Tensor> FlatIds(absl::string_view operation, const Backend& backend,
                               const Tensor& ids);
}  // namespace divvy::internal

#endif  // DIVVY_OPS_TENSORS_H_
