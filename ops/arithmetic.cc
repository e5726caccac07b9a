// Elementwise operations, with one operand and with two.
#include <algorithm>

#include "ops/fused.h"
#include "ops/operation.h"

namespace divvy {
namespace {

using internal::Backend;
using internal::BinaryOp;
using internal::GradientList;
using internal::InvalidOperands;
using internal::UnaryOp;

absl::StatusOr<Shape> BroadcastShape(absl::string_view operation, const Shape& a, const Shape& b) {
  std::vector<int64_t> dims(std::max(a.rank(), b.rank()));
  const int rank = static_cast<int>(dims.size());
  for (int axis = 0; axis < rank; ++axis) {  // counts axes from the end
    const int64_t in_a = axis < a.rank() ? a.dim(-1 - axis) : 1;
    const int64_t in_b = axis < b.rank() ? b.dim(-1 - axis) : 1;
    if (in_a != in_b && in_a != 1 && in_b != 1)
      return InvalidOperands(operation, a.ToString(), " and ", b.ToString(),
                             " do not broadcast to one shape");
    dims[rank - 1 - axis] = in_a == 1 ? in_b : in_a;
  }
  const Shape shape(dims);
  RETURN_IF_ERROR(shape.status());
  return shape;
}

// A C++ scalar in the dtype of the other operand. It stays on the CPU, from where a GPU's backend
// takes it.
absl::StatusOr<Tensor> Adapted(const Var& scalar, const Tensor& other) {
  const Tensor& single = internal::ValueOf(scalar);
  if (other.dtype() == single.dtype()) return single;
  ASSIGN_OR_RETURN(const Backend* cpu, internal::BackendFor(single.device()));
  return internal::CastTo(*cpu, Tensor::Scalar(scalar.node()->scalar), other.dtype());
}

// The operand that is on the device of the operation.
const Tensor& Placed(const Tensor& a, const Tensor& b) {
  return a.device().kind == Device::Kind::kCpu ? b : a;
}

// The values of both operands, in the same dtype, which arithmetic takes.
absl::StatusOr<std::pair<Tensor, Tensor>> Operands(absl::string_view operation, const Var& a,
                                                   const Var& b) {
  Tensor x = internal::ValueOf(a), y = internal::ValueOf(b);
  if (a.node()->adapts && internal::CheckComputedWith(operation, y).ok()) {
    ASSIGN_OR_RETURN(x, Adapted(a, y));
  } else if (b.node()->adapts && internal::CheckComputedWith(operation, x).ok()) {
    ASSIGN_OR_RETURN(y, Adapted(b, x));
  }
  if (x.dtype() != y.dtype())
    return InvalidOperands(operation, x.ToString(), " and ", y.ToString(),
                           " differ in dtype; Cast one");
  RETURN_IF_ERROR(internal::CheckComputedWith(operation, Placed(x, y)));
  return std::pair<Tensor, Tensor>(std::move(x), std::move(y));
}

absl::StatusOr<Tensor> Compute(const Backend& backend, BinaryOp op, const Tensor& a,
                               const Tensor& b, const Shape& shape) {
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(Placed(a, b), shape));
  backend.Binary(op, a, b, y);
  return y;
}

// The values that the derivative of a binary operation needs. Operands and result are kept only
// where a formula below names them.
struct BinaryRecord {
  const Backend* backend;
  BinaryOp op;
  bool for_a, for_b;
  Shape a_shape, b_shape;
  Tensor a, b, y;

  absl::StatusOr<Tensor> Times(const Tensor& gradient, BinaryOp op, const Tensor& other,
                               const Shape& to, double scale = 1) const {
    ASSIGN_OR_RETURN(const Tensor product,
                     Compute(*backend, op, gradient, other, gradient.shape()));
    return internal::SummedTo(*backend, product, to, scale);
  }
  absl::StatusOr<Tensor> Masked(const Tensor& gradient, BinaryOp slope, const Shape& to) const {
    ASSIGN_OR_RETURN(const Tensor slopes, Compute(*backend, slope, a, b, gradient.shape()));
    return Times(gradient, BinaryOp::kMultiply, slopes, to);
  }
  absl::StatusOr<Tensor> OfA(const Tensor& gradient) const {
    switch (op) {
      case BinaryOp::kMultiply: return Times(gradient, BinaryOp::kMultiply, b, a_shape);
      case BinaryOp::kDivide: return Times(gradient, BinaryOp::kDivide, b, a_shape);
      case BinaryOp::kMaximum: return Masked(gradient, BinaryOp::kGreaterEqual, a_shape);
      case BinaryOp::kMinimum: return Masked(gradient, BinaryOp::kLessEqual, a_shape);
      case BinaryOp::kPower: return Masked(gradient, BinaryOp::kPowerByBase, a_shape);
      case BinaryOp::kKeepWhere:
      case BinaryOp::kDropWhere: return Times(gradient, op, b, a_shape);
      default: return internal::SummedTo(*backend, gradient, a_shape);
    }
  }
  absl::StatusOr<Tensor> OfB(const Tensor& gradient) const {
    switch (op) {
      case BinaryOp::kSubtract: return internal::SummedTo(*backend, gradient, b_shape, -1);
      case BinaryOp::kMultiply: return Times(gradient, BinaryOp::kMultiply, a, b_shape);
      case BinaryOp::kDivide: {  // -g a / b^2 = -(g y) / b
        ASSIGN_OR_RETURN(const Tensor product,
                         Compute(*backend, BinaryOp::kMultiply, gradient, y, gradient.shape()));
        return Times(product, BinaryOp::kDivide, b, b_shape, -1);
      }
      case BinaryOp::kMaximum: return Masked(gradient, BinaryOp::kNotGreaterEqual, b_shape);
      case BinaryOp::kMinimum: return Masked(gradient, BinaryOp::kNotLessEqual, b_shape);
      case BinaryOp::kPower: return Masked(gradient, BinaryOp::kPowerByExponent, b_shape);
      default: return internal::SummedTo(*backend, gradient, b_shape);
    }
  }
  absl::StatusOr<GradientList> operator()(const Tensor& gradient) const {
    GradientList gradients(2);
    if (for_a) {
      ASSIGN_OR_RETURN(gradients[0], OfA(gradient));
    }
    if (for_b) {
      ASSIGN_OR_RETURN(gradients[1], OfB(gradient));
    }
    return gradients;
  }
};

// Whether the result is a mask, which is a constant to the tape.
bool IsComparison(BinaryOp op) {
  return op == BinaryOp::kLess || op == BinaryOp::kLessEqual || op == BinaryOp::kGreaterEqual ||
         op == BinaryOp::kEqual;
}
// Whether the second operand is a mask, which is a constant to the tape.
bool IsChoice(BinaryOp op) { return op == BinaryOp::kKeepWhere || op == BinaryOp::kDropWhere; }

absl::StatusOr<Var> TryBinary(absl::string_view operation, BinaryOp op, const Var& a,
                              const Var& b) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare(operation, {a, b}));
  ASSIGN_OR_RETURN(auto operands, Operands(operation, a, b));
  auto& [x, z] = operands;
  ASSIGN_OR_RETURN(const Shape shape, BroadcastShape(operation, x.shape(), z.shape()));
  ASSIGN_OR_RETURN(Tensor y, Compute(*backend, op, x, z, shape));
  const bool for_a = internal::NeedsGradient(a) && !IsComparison(op),
             for_b = internal::NeedsGradient(b) && !IsComparison(op) && !IsChoice(op);
  BinaryRecord record{backend, op, for_a, for_b, x.shape(), z.shape(), {}, {}, {}};
  if (!record.for_a && !record.for_b) return Var(std::move(y));
  if (op != BinaryOp::kAdd && op != BinaryOp::kSubtract) {
    record.a = x;
    record.b = z;
    record.y = y;
  }
  return internal::Result(std::move(y), {a, b}, std::move(record));
}

Var Binary(absl::string_view operation, BinaryOp op, const Var& a, const Var& b) {
  return internal::OrFailed(TryBinary(operation, op, a, b));
}

// Both choices are computed, and one of each two elements is replaced by 0. So an element that was
// not chosen, even a NaN, does not reach the sum.
Var Chosen(const Var& mask, const Var& a, const Var& b) {
  const Var chosen = Cast(mask, a.node()->adapts ? b.dtype() : a.dtype());
  return Binary("Where", BinaryOp::kKeepWhere, a, chosen) +
         Binary("Where", BinaryOp::kDropWhere, b, chosen);
}

absl::StatusOr<Var> TryUnary(absl::string_view operation, UnaryOp op, const Var& x) {
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare(operation, {x}));
  const Tensor& value = internal::ValueOf(x);
  RETURN_IF_ERROR(internal::CheckComputedWith(operation, value));
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(value));
  backend->Unary(op, value, y);
  if (!internal::NeedsGradient(x)) return Var(std::move(y));
  const Tensor kept = internal::KeptForGradient(op) == internal::Kept::kInput ? value : y;
  return internal::Result(
      std::move(y), {x},
      [backend, op, kept](const Tensor& gradient) -> absl::StatusOr<GradientList> {
        ASSIGN_OR_RETURN(Tensor dx, internal::NewLike(gradient));
        backend->UnaryGradient(op, kept, gradient, dx);
        return GradientList{std::move(dx)};
      });
}

// The values that the derivative of function(a + b) needs.
struct AddThenRecord {
  const Backend* backend;
  UnaryOp op;
  bool for_a, for_b;
  Shape a_shape, b_shape;
  Tensor y;

  // Whether this is the sum of a layer: a is the product, and b the bias.
  bool is_of_layer() const {
    return for_a && for_b && a_shape == y.shape() && b_shape.rank() == 1 &&
           b_shape.dim(0) == y.shape().dim(-1);
  }

  absl::StatusOr<GradientList> operator()(const Tensor& gradient) const {
    ASSIGN_OR_RETURN(Tensor of_sum, internal::NewLike(gradient));
    if (is_of_layer()) {
      ASSIGN_OR_RETURN(Tensor of_bias, internal::NewLike(gradient, b_shape));
      backend->UnaryGradientAndSums(op, y, gradient, of_sum, of_bias);
      return GradientList{std::move(of_sum), std::move(of_bias)};
    }
    backend->UnaryGradient(op, y, gradient, of_sum);
    return BinaryRecord{
        backend, BinaryOp::kAdd, for_a, for_b, a_shape, b_shape, {}, {}, {}}(of_sum);
  }
};

// Errors name the sum, because operands that do not fit each other do not fit the sum.
absl::StatusOr<Var> TryAddThen(UnaryOp op, const Var& a, const Var& b) {
  constexpr absl::string_view kOperation = "operator+";
  ASSIGN_OR_RETURN(const Backend* backend, internal::Prepare(kOperation, {a, b}));
  ASSIGN_OR_RETURN(auto operands, Operands(kOperation, a, b));
  auto& [x, z] = operands;
  ASSIGN_OR_RETURN(const Shape shape, BroadcastShape(kOperation, x.shape(), z.shape()));
  ASSIGN_OR_RETURN(Tensor y, internal::NewLike(Placed(x, z), shape));
  backend->AddThen(op, x, z, y);
  return internal::Result(y, {a, b},
                          AddThenRecord{backend, op, internal::NeedsGradient(a),
                                        internal::NeedsGradient(b), x.shape(), z.shape(), y});
}

Var Unary(absl::string_view operation, UnaryOp op, const Var& x) {
  return internal::OrFailed(TryUnary(operation, op, x));
}

}  // namespace

Var operator+(const Var& a, const Var& b) { return Binary("operator+", BinaryOp::kAdd, a, b); }
Var operator-(const Var& a, const Var& b) { return Binary("operator-", BinaryOp::kSubtract, a, b); }
Var operator*(const Var& a, const Var& b) { return Binary("operator*", BinaryOp::kMultiply, a, b); }
Var operator/(const Var& a, const Var& b) { return Binary("operator/", BinaryOp::kDivide, a, b); }
Var Maximum(const Var& a, const Var& b) { return Binary("Maximum", BinaryOp::kMaximum, a, b); }
Var Minimum(const Var& a, const Var& b) { return Binary("Minimum", BinaryOp::kMinimum, a, b); }
Var Pow(const Var& a, const Var& b) { return Binary("Pow", BinaryOp::kPower, a, b); }
Var Clip(const Var& x, const Var& low, const Var& high) { return Minimum(Maximum(x, low), high); }
Var Less(const Var& a, const Var& b) { return Binary("Less", BinaryOp::kLess, a, b); }
Var LessEqual(const Var& a, const Var& b) {
  return Binary("LessEqual", BinaryOp::kLessEqual, a, b);
}
Var Greater(const Var& a, const Var& b) { return Binary("Greater", BinaryOp::kLess, b, a); }
Var GreaterEqual(const Var& a, const Var& b) {
  return Binary("GreaterEqual", BinaryOp::kGreaterEqual, a, b);
}
Var Equal(const Var& a, const Var& b) { return Binary("Equal", BinaryOp::kEqual, a, b); }
Var Where(const Var& mask, const Var& a, const Var& b) { return Chosen(mask, a, b); }
Var operator-(const Var& a) { return Unary("operator-", UnaryOp::kNegative, a); }
Var Abs(const Var& x) { return Unary("Abs", UnaryOp::kAbs, x); }
Var Exp(const Var& x) { return Unary("Exp", UnaryOp::kExp, x); }
Var Log(const Var& x) { return Unary("Log", UnaryOp::kLog, x); }
Var Sqrt(const Var& x) { return Unary("Sqrt", UnaryOp::kSqrt, x); }
Var Square(const Var& x) { return Unary("Square", UnaryOp::kSquare, x); }
Var Relu(const Var& x) { return Unary("Relu", UnaryOp::kRelu, x); }
Var Sigmoid(const Var& x) { return Unary("Sigmoid", UnaryOp::kSigmoid, x); }
Var Tanh(const Var& x) { return Unary("Tanh", UnaryOp::kTanh, x); }
Var Gelu(const Var& x) { return Unary("Gelu", UnaryOp::kGelu, x); }
Var Softplus(const Var& x) { return Unary("Softplus", UnaryOp::kSoftplus, x); }

Var internal::AddThen(UnaryOp op, const Var& a, const Var& b) {
  return OrFailed(TryAddThen(op, a, b));
}

}  // namespace divvy
