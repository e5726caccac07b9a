// Matrix products.
#include "ops/operation.h"

namespace divvy {
namespace {

using internal::Backend;
using internal::GradientList;
using internal::InvalidOperands;
using internal::MatMulArgs;

// An operand: its matrix or matrices, and whether it is transposed.
struct Factor {
  Tensor value;
  bool transposed;

  int rank() const { return value.shape().rank(); }
  int64_t batch() const { return rank() == 3 ? value.shape().dim(0) : 1; }
  int64_t rows() const { return value.shape().dim(transposed ? -1 : -2); }
  int64_t columns() const { return value.shape().dim(transposed ? -2 : -1); }
  Factor Flipped() const { return {value, !transposed}; }
  std::string ToString() const {
    return absl::StrCat(value.shape().ToString(), transposed ? " transposed" : "");
  }
};

absl::Status CheckFactors(const Factor& a, const Factor& b) {
  const std::string both = absl::StrCat(a.ToString(), " x ", b.ToString(), ": ");
  if (a.value.dtype() != b.value.dtype()) {
    return InvalidOperands("MatMul", both, "the dtypes ", DTypeName(a.value.dtype()), " and ",
                           DTypeName(b.value.dtype()), " differ; Cast one");
  }
  RETURN_IF_ERROR(internal::CheckComputedWith("MatMul", a.value));
  if (a.rank() != b.rank() || (a.rank() != 2 && a.rank() != 3))
    return InvalidOperands("MatMul", both, "both must have rank 2, or both rank 3");
  if (a.batch() != b.batch())
    return InvalidOperands("MatMul", both, "the leading dimensions ", a.batch(), " and ", b.batch(),
                           " differ");
  if (a.columns() != b.rows())
    return InvalidOperands("MatMul", both, "the inner dimensions ", a.columns(), " and ", b.rows(),
                           " differ");
  return internal::CheckFitsBlas("MatMul", a.value, {a.rows(), a.columns(), b.columns()});
}

// REQUIRES: CheckFactors is OK.
absl::StatusOr<Tensor> Product(const Backend& backend, const Factor& a, const Factor& b) {
  const MatMulArgs args{a.transposed, b.transposed, a.batch(), a.rows(), b.columns(), a.columns()};
  const Shape shape = a.rank() == 3 ? Shape{args.batch, args.m, args.n} : Shape{args.m, args.n};
  ASSIGN_OR_RETURN(Tensor c, internal::NewLike(a.value, shape));
  backend.MatMul(args, a.value, b.value, c);
  return c;
}

// The gradients of the operands as stored: c = op(a) op(b) gives d op(a) = g op(b)^T and d op(b) =
// op(a)^T g, transposed once more where the operand was.
absl::StatusOr<GradientList> ProductGradients(const Backend& backend, const Factor& a,
                                              const Factor& b, bool for_a, bool for_b,
                                              const Tensor& gradient) {
  GradientList gradients(2);
  const Factor g{gradient, false};
  if (for_a) {
    ASSIGN_OR_RETURN(gradients[0], a.transposed ? Product(backend, b, g.Flipped())
                                                : Product(backend, g, b.Flipped()));
  }
  if (for_b) {
    ASSIGN_OR_RETURN(gradients[1], b.transposed ? Product(backend, g.Flipped(), a)
                                                : Product(backend, a.Flipped(), g));
  }
  return gradients;
}

absl::StatusOr<Var> TryMatMul(const Var& a, const Var& b, bool a_transposed, bool b_transposed) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare("MatMul", {a, b}));
  const Factor left{internal::ValueOf(a), a_transposed}, right{internal::ValueOf(b), b_transposed};
  RETURN_IF_ERROR(CheckFactors(left, right));
  ASSIGN_OR_RETURN(Tensor c, Product(*backend, left, right));
  const bool for_a = internal::NeedsGradient(a), for_b = internal::NeedsGradient(b);
  return internal::Result(std::move(c), {a, b},
                          [backend, left, right, for_a, for_b](const Tensor& gradient) {
                            return ProductGradients(*backend, left, right, for_a, for_b, gradient);
                          });
}

}  // namespace

Var MatMul(const Var& a, const Var& b, Transpose a_transposed, Transpose b_transposed) {
  return internal::OrFailed(
      TryMatMul(a, b, a_transposed == Transpose::kYes, b_transposed == Transpose::kYes));
}

}  // namespace divvy
