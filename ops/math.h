// The vocabulary of arithmetic that every backend speaks: plain numbers, so that a backend in a
// library of its own needs nothing else of ours.
#ifndef DIVVY_OPS_MATH_H_
#define DIVVY_OPS_MATH_H_

#include <cstdint>

namespace divvy::internal {

enum class UnaryOp {
  kNegative,
  kAbs,
  kExp,
  kLog,
  kSqrt,
  kSquare,
  kRelu,
  kSigmoid,
  kTanh,
  kGelu,
  kSoftplus
};
enum class BinaryOp {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kMaximum,
  kMinimum,
  kPower,
  // 1 where it holds, else 0. A NaN is neither less than a number nor equal to one.
  kLess,
  kLessEqual,
  kGreaterEqual,
  kEqual,
  // With kLessEqual the masks of a minimum's gradient: one of the two is 1, also beside a NaN.
  kNotLessEqual,
  // With kGreaterEqual those of a maximum's.
  kNotGreaterEqual,
  // A where b is not 0, else 0.
  kKeepWhere,
  // A where b is 0, else 0.
  kDropWhere,
  // b a^(b - 1), the derivative of a^b by a
  kPowerByBase,
  // A^b log a where a > 0, else 0: its derivative by b.
  kPowerByExponent,
};

// Which side of an operation its derivative is computed from: keeping that one is enough, and the
// other's memory can go.
enum class Kept { kInput, kOutput };
constexpr Kept KeptForGradient(UnaryOp op) {
  switch (op) {
    case UnaryOp::kNegative:
    case UnaryOp::kAbs:
    case UnaryOp::kLog:
    case UnaryOp::kSquare:
    case UnaryOp::kGelu:
    case UnaryOp::kSoftplus: return Kept::kInput;
    case UnaryOp::kExp:
    case UnaryOp::kSqrt:
    case UnaryOp::kRelu:
    case UnaryOp::kSigmoid:
    case UnaryOp::kTanh: return Kept::kOutput;
  }
  return Kept::kInput;
}

// `batch` products of matrices that lie one after the other, row-major: c [m, n] = a [m, k] x b [k,
// n]. An operand that is transposed lies there as [k, m], or [n, k].
struct MatMulArgs {
  bool a_transposed = false;
  bool b_transposed = false;
  int64_t batch = 1;
  int64_t m = 0, n = 0, k = 0;  // of the result [m, n] and the summed extent
};

// What a convolution or a pool moves over images [batch, in_height, in_width, channels], and the
// places where it stops. The window at (i, j) covers rows i * stride - top to that + height, and
// columns likewise; what lies outside the image counts as 0 in a convolution and not at all in a
// pool.
struct Window2D {
  int64_t batch = 0, in_height = 0, in_width = 0, channels = 0;
  int64_t height = 1, width = 1;  // of the window
  int64_t stride = 1;
  int64_t top = 0, left = 0;  // padding
  int64_t out_height = 0, out_width = 0;
};

// How a row (what lies along the last axis) is normalised.
enum class Norm {
  kLayer,  // (x - mean) / sqrt(variance + epsilon)
  kL2,     // x / sqrt(max(sum of squares, epsilon))
};

}  // namespace divvy::internal

#endif  // DIVVY_OPS_MATH_H_
