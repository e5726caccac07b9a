// Helpers shared by the operations of ops.h. Private to ops/.
#ifndef DIVVY_OPS_OPERATION_H_
#define DIVVY_OPS_OPERATION_H_

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/status_macros.h"
#include "ops/backends.h"
#include "ops/ops.h"
#include "ops/recording.h"
#include "ops/tensors.h"

namespace divvy::internal {

using GradientList = std::vector<std::optional<Tensor>>;

// The Var of an operation that is written with StatusOr; a failed Var for an error.
inline Var OrFailed(absl::StatusOr<Var> result) {
  return result.ok() ? *std::move(result) : FailedVar(result.status());
}

// The error of an operand that does not fit: InvalidArgument, "MatMul: [2, 3] and [4, 5] ...".
template <typename... Parts>
absl::Status InvalidOperands(absl::string_view operation, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(operation, ": ", parts...));
}

// Fetches the operands and returns the backend of their device. Returns the first error among them,
// or an error if they are on different devices; a C++ scalar fits every device.
absl::StatusOr<const Backend*> Prepare(absl::string_view operation, absl::Span<const Var> operands);
// InvalidArgument: arithmetic does not take x (CheckComputedWith), or x is a scalar, which has no
// last axis.
absl::Status CheckHasLastAxis(absl::string_view operation, const Tensor& x);
// InvalidArgument: x is on the CPU, and an extent of the product is too large for an integer of
// BLAS.
absl::Status CheckFitsBlas(absl::string_view operation, const Tensor& x,
                           std::initializer_list<int64_t> extents);
// The axis as a non-negative number. InvalidArgument: it does not exist.
absl::StatusOr<int> AxisOf(absl::string_view operation, const Shape& shape, int axis);
// scale * x, summed over the axes along which `shape` would be stretched to x's shape.
absl::StatusOr<Tensor> SummedTo(const Backend& backend, const Tensor& x, const Shape& shape,
                                double scale = 1);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_OPERATION_H_
