#include "ops/tensors.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy::internal {

absl::StatusOr<Tensor> NewLike(const Tensor& like) { return NewLike(like, like.shape()); }

absl::StatusOr<Tensor> NewLike(const Tensor& like, Shape shape) {
  return Tensor::Uninitialized(like.dtype(), shape, like.device());
}

absl::StatusOr<Tensor> CastTo(const Backend& backend, const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  ASSIGN_OR_RETURN(Tensor result, Tensor::Uninitialized(dtype, x.shape(), x.device()));
  backend.Cast(x, result);
  return result;
}

absl::Status CheckComputedWith(absl::string_view what, const Tensor& x) {
  const bool is_narrow = x.dtype() == DType::kFloat16 || x.dtype() == DType::kBFloat16;
  if (x.dtype() == DType::kFloat32 || x.dtype() == DType::kFloat64) return absl::OkStatus();
  if (is_narrow && x.device().kind == Device::Kind::kGpu) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": arithmetic does not take ", x.ToString(), is_narrow ? " on the CPU" : "",
      "; Cast it to float32 or float64", is_narrow ? ", or compute on a GPU" : ""));
}

DType SummedIn(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

absl::StatusOr<Tensor> FlatIds(absl::string_view operation, const Backend& backend,
                               const Tensor& ids) {
  if (!IsInteger(ids.dtype()))
    return absl::InvalidArgumentError(
        absl::StrCat(operation, ": ids are ", ids.ToString(), ", not integers"));
  ASSIGN_OR_RETURN(const Tensor wide, CastTo(backend, ids, DType::kInt64));
  return wide.Reshape({wide.shape().num_elements()});
}

}  // namespace divvy::internal
