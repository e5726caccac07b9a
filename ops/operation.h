// What the operations of ops.h share. Private to ops/.
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

// From an operation that is written with StatusOr to the Var that it gives.
inline Var OrFailed(absl::StatusOr<Var> result) {
  return result.ok() ? *std::move(result) : FailedVar(result.status());
}

// InvalidArgument, "MatMul: [2, 3] and [4, 5] ...": an operand that does not fit.
template <typename... Parts>
absl::Status Unfit(absl::string_view operation, const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(operation, ": ", parts...));
}

// Fetches the operands. The first error among them, or that they lie on different devices; a C++
// scalar lies on any.
absl::StatusOr<const Backend*> Prepare(absl::string_view operation, absl::Span<const Var> operands);
// InvalidArgument: not computed with (CheckComputedWith), or a scalar, which has no last axis.
absl::Status CheckHasLastAxis(absl::string_view operation, const Tensor& x);
// InvalidArgument: on the CPU, an extent of a product that its BLAS has no number for.
absl::Status CheckFitsBlas(absl::string_view operation, const Tensor& x,
                           std::initializer_list<int64_t> extents);
// The axis counted from the front. InvalidArgument: it does not exist.
absl::StatusOr<int> AxisOf(absl::string_view operation, const Shape& shape, int axis);
// scale times x, summed over what `shape` was stretched by to become x's.
absl::StatusOr<Tensor> SummedTo(const Backend& backend, const Tensor& x, const Shape& shape,
                                double scale = 1);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_OPERATION_H_
