#include "ops/operation.h"

#include <algorithm>
#include <limits>

namespace divvy::internal {

absl::StatusOr<const Backend*> Prepare(absl::string_view operation,
                                       absl::Span<const Var> operands) {
  RETURN_IF_ERROR(FirstError(operands));
  std::optional<Device> device;
  for (const Var& operand : operands) {
    if (operand.node()->adapts) continue;
    const Device own = ValueOf(operand).device();
    if (device.value_or(own) != own)
      return InvalidOperands(operation, "the operands are on ", device->ToString(), " and ",
                             own.ToString(), "; move one with To");
    device = own;
  }
  return BackendFor(device.value_or(Device{}));
}

absl::Status CheckHasLastAxis(absl::string_view operation, const Tensor& x) {
  RETURN_IF_ERROR(CheckComputedWith(operation, x));
  return x.shape().rank() > 0 ? absl::OkStatus()
                              : InvalidOperands(operation, x.ToString(), " has no last axis");
}

absl::Status CheckFitsBlas(absl::string_view operation, const Tensor& x,
                           std::initializer_list<int64_t> extents) {
  if (x.device().kind == Device::Kind::kGpu || std::max(extents) <= std::numeric_limits<int>::max())
    return absl::OkStatus();
  return InvalidOperands(operation, x.ToString(),
                         ": an extent of 2^31 or more is too large for the CPU's BLAS");
}

absl::StatusOr<int> AxisOf(absl::string_view operation, const Shape& shape, int axis) {
  if (axis < -shape.rank() || axis >= shape.rank())
    return InvalidOperands(operation, "axis ", axis, " of ", shape.ToString(), " does not exist");
  return axis < 0 ? axis + shape.rank() : axis;
}

absl::StatusOr<Tensor> SummedTo(const Backend& backend, const Tensor& x, const Shape& shape,
                                double scale) {
  if (x.shape() == shape && scale == 1) return x;
  ASSIGN_OR_RETURN(Tensor result, NewLike(x, shape));
  if (x.shape() == shape) {
    backend.Broadcast(x, scale, result);
  } else {
    backend.SumTo(x, scale, result);
  }
  return result;
}

}  // namespace divvy::internal
