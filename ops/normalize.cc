// Normalizations along the last axis.
#include <cmath>

#include "ops/operation.h"

namespace divvy {
namespace {

using internal::Backend;
using internal::GradientList;
using internal::InvalidOperands;
using internal::Norm;

constexpr double kL2Epsilon = 1e-12;  // of the squared norm, as tf.math.l2_normalize's

absl::StatusOr<Var> TrySoftmax(const Var& x) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("Softmax", {x}));
  const Tensor& value = internal::ValueOf(x);
  RETURN_IF_ERROR(internal::CheckHasLastAxis("Softmax", value));
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(value));
  backend->Softmax(value, y);
  return internal::Result(y, {x},
                          [backend, y](const Tensor& gradient) -> absl::StatusOr<GradientList> {
                            ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(gradient));
                            backend->SoftmaxGradient(y, gradient, dx);
                            return GradientList{std::move(dx)};
                          });
}

absl::StatusOr<Var> TryNormalize(absl::string_view operation, Norm norm, double epsilon,
                                 const Var& x) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare(operation, {x}));
  const Tensor value = internal::ValueOf(x);
  RETURN_IF_ERROR(internal::CheckHasLastAxis(operation, value));
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(value));
  backend->Normalize(norm, epsilon, value, y);
  return internal::Result(
      std::move(y), {x},
      [backend, norm, epsilon, value](const Tensor& gradient) -> absl::StatusOr<GradientList> {
        ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(gradient));
        backend->NormalizeGradient(norm, epsilon, value, gradient, dx);
        return GradientList{std::move(dx)};
      });
}

absl::StatusOr<Var> TryLayerNorm(const Var& x, const Var& scale, const Var& offset, float epsilon) {
  RETURN_IF_ERROR(internal::Prepare("LayerNorm", {x, scale, offset}).status());
  const Tensor& value = internal::ValueOf(x);
  RETURN_IF_ERROR(internal::CheckHasLastAxis("LayerNorm", value));
  if (!(epsilon >= 0) || std::isinf(epsilon))
    return InvalidOperands("LayerNorm", "epsilon is ", epsilon,
                           "; it must be a number of 0 or more");
  for (const Var& factor : {scale, offset}) {
    const Tensor& parameter = internal::ValueOf(factor);
    if (parameter.dtype() == value.dtype() && parameter.shape() == Shape{value.shape().dim(-1)})
      continue;
    return InvalidOperands("LayerNorm", value.ToString(), " with ", parameter.ToString(),
                           "; scale and offset have the extent of the last axis and its dtype");
  }
  ASSIGN_OR_RETURN(const Var normalized, TryNormalize("LayerNorm", Norm::kLayer, epsilon, x));
  return normalized * scale + offset;
}

}  // namespace

Var Softmax(const Var& x) { return internal::OrFailed(TrySoftmax(x)); }
Var LayerNorm(const Var& x, const Var& scale, const Var& offset, float epsilon) {
  return internal::OrFailed(TryLayerNorm(x, scale, offset, epsilon));
}
Var L2Normalize(const Var& x) {
  return internal::OrFailed(TryNormalize("L2Normalize", Norm::kL2, kL2Epsilon, x));
}

}  // namespace divvy
