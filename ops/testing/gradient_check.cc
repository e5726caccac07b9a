#include "ops/testing/gradient_check.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ops/ops.h"
#include "ops/testing/map_reader.h"

namespace divvy {
namespace {

constexpr double kStep = 1e-5;
constexpr double kTolerance = 1e-6;

std::string NameOf(size_t leaf) { return absl::StrCat("leaf ", leaf); }

// A scalar: each element times 1, 1.37, 1.74, ...
absl::StatusOr<Var> Weighted(const Var& value, Device device) {
  std::vector<double> weights(value.shape().num_elements());
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = 1 + 0.37 * static_cast<double>(i);
  ASSIGN_OR_RETURN(const Tensor there, Tensor::Vector<double>(weights).To(device));
  return ReduceSum(Reshape(value, {-1}) * Var(there));
}

absl::StatusOr<Var> Build(const Differentiable& function, const std::vector<Tensor>& leaves,
                          Device device, GradientTape& tape) {
  std::vector<Var> vars;
  for (size_t i = 0; i < leaves.size(); ++i) {
    ASSIGN_OR_RETURN(Tensor there, leaves[i].To(device));
    vars.push_back(tape.Watch(NameOf(i), std::move(there)));
  }
  return Weighted(function(tape, vars), device);
}

absl::StatusOr<double> Evaluate(const Differentiable& function, const std::vector<Tensor>& leaves,
                                Device device) {
  MapReader reader;
  GradientTape tape(reader);
  ASSIGN_OR_RETURN(const Var sum, Build(function, leaves, device, tape));
  ASSIGN_OR_RETURN(const Tensor value, sum.Value());
  ASSIGN_OR_RETURN(const Tensor here, value.To(Device{}));
  return here.scalar<double>();
}

absl::StatusOr<double> Difference(const Differentiable& function, std::vector<Tensor> leaves,
                                  Device device, size_t leaf, size_t element) {
  double values[2];
  const Tensor original = leaves[leaf];
  for (int side = 0; side < 2; ++side) {
    leaves[leaf] = original;
    ASSIGN_OR_RETURN(const absl::Span<double> elements, leaves[leaf].mutable_values<double>());
    elements[element] += side == 0 ? kStep : -kStep;
    ASSIGN_OR_RETURN(values[side], Evaluate(function, leaves, device));
  }
  return (values[0] - values[1]) / (2 * kStep);
}

absl::Status CheckLeaf(const Differentiable& function, const std::vector<Tensor>& leaves,
                       Device device, size_t leaf, const Tensor& gradient) {
  if (gradient.shape() != leaves[leaf].shape()) {
    return absl::InternalError(
        absl::StrCat("the gradient of ", leaves[leaf].ToString(), " is ", gradient.ToString()));
  }
  ASSIGN_OR_RETURN(const Tensor here, gradient.To(Device{}));
  ASSIGN_OR_RETURN(const absl::Span<const double> computed, here.values<double>());
  for (size_t i = 0; i < computed.size(); ++i) {
    ASSIGN_OR_RETURN(const double expected, Difference(function, leaves, device, leaf, i));
    if (std::abs(computed[i] - expected) <= kTolerance * std::max(1.0, std::abs(expected)))
      continue;
    return absl::InternalError(absl::StrCat(NameOf(leaf), ", element ", i, ": the tape gives ",
                                            computed[i], ", differences ", expected));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckGradients(const Differentiable& function, const std::vector<Tensor>& leaves,
                            Device device) {
  MapReader reader;
  GradientTape tape(reader);
  ASSIGN_OR_RETURN(const Var sum, Build(function, leaves, device, tape));
  ASSIGN_OR_RETURN(const Gradients gradients, tape.Gradient(sum));
  for (size_t i = 0; i < leaves.size(); ++i) {
    const auto found = gradients.entries().find(NameOf(i));
    if (found == gradients.entries().end())
      return absl::InternalError(absl::StrCat(NameOf(i), " has no gradient"));
    RETURN_IF_ERROR(CheckLeaf(function, leaves, device, i, std::get<Tensor>(found->second)));
  }
  return absl::OkStatus();
}

}  // namespace divvy
