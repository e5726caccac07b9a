// Tensors beside other tensors, for operations and lookups. Private to ops/.
#ifndef DIVVY_OPS_TENSORS_H_
#define DIVVY_OPS_TENSORS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// A fresh tensor beside `like`, of its dtype.
absl::StatusOr<Tensor> NewLike(const Tensor& like);
absl::StatusOr<Tensor> NewLike(const Tensor& like, Shape shape);
// x itself where it has the dtype. `backend` is x's.
absl::StatusOr<Tensor> CastTo(const Backend& backend, const Tensor& x, DType dtype);
// InvalidArgument, beginning with `what`, unless arithmetic takes x: float32 and float64, on a GPU
// float16 and bfloat16 too.
absl::Status CheckComputedWith(absl::string_view what, const Tensor& x);
// What sums of many are computed in: float32 for float16 and bfloat16, which on the CPU only move
// values; else `dtype` itself.
DType SummedIn(DType dtype);

// Ids of any shape and integer dtype as int64 [n]. InvalidArgument: no integers; names the
// operation.
absl::StatusOr<Tensor> FlatIds(absl::string_view operation, const Backend& backend,
                               const Tensor& ids);
// Of the rows that ids of any shape name: ids.shape + the shape of a row. `rows` is the table's
// shape, or that of some of its rows. REQUIRES: its rank >= 1.
Shape RowsShape(const Shape& ids, const Shape& rows);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_TENSORS_H_
