#include "ops/operation.h"

namespace divvy::internal {

absl::StatusOr<const Backend*> Prepare(absl::string_view operation, absl::Span<const Var> operands) {
  RETURN_IF_ERROR(FirstError(operands));
  const Device device = operands.empty() ? Device{} : ValueOf(operands[0]).device();
  for (const Var& operand : operands) {
    if (ValueOf(operand).device() == device) continue;
    return Unfit(operation, "operands on ", device.ToString(), " and ", ValueOf(operand).device().ToString(), "; move one with To");
  }
  return BackendFor(device);
}

absl::Status CheckFloating(absl::string_view operation, const Tensor& x) {
  if (x.dtype() == DType::kFloat32 || x.dtype() == DType::kFloat64) return absl::OkStatus();
  return Unfit(operation, x.ToString(), " is not computed with; Cast it to float32 or float64");
}

absl::StatusOr<Tensor> NewLike(const Tensor& like) { return NewLike(like, like.shape()); }

absl::StatusOr<Tensor> NewLike(const Tensor& like, Shape shape) { return Tensor::Uninitialized(like.dtype(), shape, like.device()); }

absl::StatusOr<Tensor> CastTo(const Backend& backend, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  ASSIGN_OR_RETURN(Tensor result, Tensor::Uninitialized(dtype, x.shape(), x.device()));
  backend.Cast(x, result);
  return result;
}

absl::StatusOr<Tensor> SummedTo(const Backend& backend, const Tensor& x, const Shape& shape, double scale) {
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
