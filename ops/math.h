// The enumerations and arguments of arithmetic that all backends share. They are plain numbers, so
// a backend in a separate library needs nothing else of Divvy's.
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
  // Comparisons: 1 where the comparison holds, else 0. All are 0 beside a NaN.
  kLess,
  kLessEqual,
  kGreaterEqual,
  kEqual,
  // With kLessEqual, the masks of a minimum's gradient: exactly one of the two is 1, also beside a
  // NaN.
  kNotLessEqual,
  // With kGreaterEqual, the masks of a maximum's gradient.
  kNotGreaterEqual,
  // a where b is not 0, else 0.
  kKeepWhere,
  // a where b is 0, else 0.
  kDropWhere,
  // b a^(b - 1): the derivative of a^b with respect to a.
  kPowerByBase,
  // a^b log a where a > 0, else 0: the derivative of a^b with respect to b.
  kPowerByExponent,
};

// Whether the derivative of an operation is computed from its input or its output. Only that one is
// kept; the memory of the other can be freed.
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

// `batch` consecutive matrix products, row-major: c [m, n] = a [m, k] x b [k, n]. A transposed
// operand is stored as [k, m] or [n, k].
struct MatMulArgs {
  bool a_transposed = false;
  bool b_transposed = false;
  int64_t batch = 1;
  int64_t m = 0, n = 0, k = 0;  // of the result [m, n] and the summed extent
};

// The windows of a convolution or a pool over images [batch, in_height, in_width, channels]. The
// window at (i, j) covers rows i * stride - top to i * stride - top + height - 1, and columns
// likewise. Positions outside the image count as 0 in a convolution and are ignored in a pool.
struct Window2D {
  int64_t batch = 0, in_height = 0, in_width = 0, channels = 0;
  int64_t height = 1, width = 1;  // of the window
  int64_t stride = 1;
  int64_t top = 0, left = 0;  // padding
  int64_t out_height = 0, out_width = 0;
};

// The normalization of a row (a slice along the last axis).
enum class Norm {
  kLayer,  // (x - mean) / sqrt(variance + epsilon)
  kL2,     // x / sqrt(max(sum of squares, epsilon))
};

}  // namespace divvy::internal

#endif  // DIVVY_OPS_MATH_H_
