// Losses, one number for each example.
#include "ops/operation.h"

namespace divvy {
namespace {

using internal::Backend;
using internal::GradientList;
using internal::InvalidOperands;

// The labels in the form that the backend takes: int64 class numbers, or probabilities in the
// logits' dtype.
absl::StatusOr<Tensor> ClassLabels(const Backend& backend, const Tensor& logits,
                                   const Tensor& labels) {
  const Shape& shape = logits.shape();
  if (shape.rank() == 2 && labels.shape() == shape && IsFloating(labels.dtype()))
    return internal::CastTo(backend, labels, logits.dtype());
  if (shape.rank() == 2 && labels.shape() == Shape{shape.dim(0)} && IsInteger(labels.dtype()))
    return internal::CastTo(backend, labels, DType::kInt64);
  return InvalidOperands(
      "SoftmaxCrossEntropy", "logits ", logits.ToString(), " and labels ", labels.ToString(),
      "; logits are [batch, classes], labels integers [batch] or floating probabilities "
      "[batch, classes]");
}

absl::StatusOr<Var> TrySoftmaxCrossEntropy(const Var& logits, const Var& labels) {
  ASSIGN_OR_RETURN(const Backend* backend,
                   internal::Prepare("SoftmaxCrossEntropy", {logits, labels}));
  const Tensor& x = internal::ValueOf(logits);
  RETURN_IF_ERROR(internal::CheckComputedWith("SoftmaxCrossEntropy", x));
  ASSIGN_OR_RETURN(const Tensor z, ClassLabels(*backend, x, internal::ValueOf(labels)));
  ASSIGN_OR_RETURN(Tensor loss, internal::NewLike(x, {x.shape().dim(0)}));
  ASSIGN_OR_RETURN(Tensor softmax, internal::NewLike(x));
  RETURN_IF_ERROR(backend->SoftmaxCrossEntropy(x, z, loss, softmax));
  auto backward = [backend, z,
                   softmax](const Tensor& gradient) mutable -> absl::StatusOr<GradientList> {
    backend->SoftmaxCrossEntropyGradient(z, gradient, softmax);
    return GradientList{std::move(softmax)};
  };
  return internal::Result(std::move(loss), {logits}, std::move(backward));
}

// The labels in the other operand's dtype. InvalidArgument: shapes differ.
absl::StatusOr<Tensor> LabelsLike(absl::string_view operation, const Backend& backend,
                                  const Tensor& x, const Tensor& labels) {
  RETURN_IF_ERROR(internal::CheckComputedWith(operation, x));
  if (x.shape() != labels.shape())
    return InvalidOperands(operation, x.ToString(), " and labels ", labels.ToString(),
                           " differ in shape; Reshape one");
  return internal::CastTo(backend, labels, x.dtype());
}

absl::StatusOr<Var> TrySigmoidCrossEntropy(const Var& logits, const Var& labels) {
  ASSIGN_OR_RETURN(const Backend* backend,
                   internal::Prepare("SigmoidCrossEntropy", {logits, labels}));
  const Tensor& x = internal::ValueOf(logits);
  ASSIGN_OR_RETURN(const Tensor z,
                   LabelsLike("SigmoidCrossEntropy", *backend, x, internal::ValueOf(labels)));
  ASSIGN_OR_RETURN(Tensor loss, internal::NewLike(x));
  RETURN_IF_ERROR(backend->SigmoidCrossEntropy(x, z, loss));
  return internal::Result(std::move(loss), {logits},
                          [backend, x, z](const Tensor& gradient) -> absl::StatusOr<GradientList> {
                            ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(x));
                            backend->SigmoidCrossEntropyGradient(x, z, gradient, dx);
                            return GradientList{std::move(dx)};
                          });
}

absl::StatusOr<Var> TrySquaredError(const Var& predictions, const Var& labels) {
  ASSIGN_OR_RETURN(const Backend* backend,
                   internal::Prepare("SquaredError", {predictions, labels}));
  const Tensor& x = internal::ValueOf(predictions);
  RETURN_IF_ERROR(LabelsLike("SquaredError", *backend, x, internal::ValueOf(labels)));
  return Square(predictions - Cast(labels, x.dtype()));
}

}  // namespace

Var SoftmaxCrossEntropy(const Var& logits, const Var& labels) {
  return internal::OrFailed(TrySoftmaxCrossEntropy(logits, labels));
}
Var SigmoidCrossEntropy(const Var& logits, const Var& labels) {
  return internal::OrFailed(TrySigmoidCrossEntropy(logits, labels));
}
Var SquaredError(const Var& predictions, const Var& labels) {
  return internal::OrFailed(TrySquaredError(predictions, labels));
}

}  // namespace divvy
