// Operations on Vars.
//
// Broadcasting is NumPy's: shapes are aligned at the right, extents of 1 are stretched, and the
// gradient is summed over the stretched axes. Operands must have the same dtype; only a C++ scalar
// adapts to the other operand. Arithmetic takes float32 and float64. On a GPU it also takes float16
// and bfloat16, computes with them as float32, and rounds each result to nearest even. Operations
// that only move or cast elements take any dtype. Batches may be empty.
//
// An operand that does not fit gives a failed Var with InvalidArgument; the message names the
// operation and the shapes. An operation on a failed Var fails with the same reason.
//
// Call these functions on the tape's thread. They do not wait for a GPU, but the first use of a
// pending Var (see ops/var.h) blocks until it is fetched.
#ifndef DIVVY_OPS_OPS_H_
#define DIVVY_OPS_OPS_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "ops/var.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace divvy {

// Element-wise, with broadcasting: [2, 3] + [3] -> [2, 3]. A C++ scalar takes the dtype of the
// other operand: x * 0.5f. Division is IEEE's: x / 0 is infinite or NaN.
Var operator+(const Var& a, const Var& b);
Var operator-(const Var& a, const Var& b);
Var operator*(const Var& a, const Var& b);
Var operator/(const Var& a, const Var& b);
Var operator-(const Var& a);

// Element-wise: the result has the operand's shape; several operands are broadcast. Outside their
// domain these functions behave as the C library's: Log(0) is -infinity, Sqrt(-1) and Pow(-1, 0.5)
// are NaN. Sigmoid, Softplus and Softmax do not overflow for any finite input. Gradients at ties
// are TensorFlow's.
Var Abs(const Var& x);  // gradient 0 at 0
// e^x; infinite where it overflows.
Var Exp(const Var& x);
// The natural logarithm.
Var Log(const Var& x);
// The square root. The gradient is infinite at 0.
Var Sqrt(const Var& x);
// x * x.
Var Square(const Var& x);
// The gradient goes to the larger operand, and to `a` where they are equal.
Var Maximum(const Var& a, const Var& b);
// The gradient goes to the smaller operand, and to `a` where they are equal.
Var Minimum(const Var& a, const Var& b);
// Minimum(Maximum(x, low), high). The gradient goes to x where low <= x <= high.
Var Clip(const Var& x, const Var& low, const Var& high);
// base^exponent; either may be a C++ scalar. The exponent's gradient is 0 where the base is not
// above 0.
Var Pow(const Var& base, const Var& exponent);
// max(x, 0). The gradient at 0 is 0.
Var Relu(const Var& x);
// 1 / (1 + e^-x).
Var Sigmoid(const Var& x);
// The hyperbolic tangent.
Var Tanh(const Var& x);
// x Phi(x), where Phi is the exact normal distribution function (Hendrycks and Gimpel, 2016;
// tf.nn.gelu with approximate=False).
Var Gelu(const Var& x);
// log(1 + e^x)
Var Softplus(const Var& x);
// exp(x) / sum of exp(x) over the last axis. The rank must be >= 1.
Var Softmax(const Var& x);

// Comparisons, as masks in the operands' dtype: 1 where the comparison holds, else 0. All are 0
// where an operand is NaN. To the tape the results are constants. Cast integers to a floating dtype
// first.
// a < b, and so on.
Var Less(const Var& a, const Var& b);
Var LessEqual(const Var& a, const Var& b);
Var Greater(const Var& a, const Var& b);
Var GreaterEqual(const Var& a, const Var& b);
Var Equal(const Var& a, const Var& b);
// `a` where `mask` (of any dtype) is not 0, else `b`; all three are broadcast. The gradient goes to
// the chosen elements only. The elements that are not chosen may be NaN.
Var Where(const Var& mask, const Var& a, const Var& b);

// Sets each element to 0 with probability `rate`, and divides the others by 1 - rate (Srivastava et
// al., 2014; tf.nn.dropout). Returns x itself on a tape in inference mode, and with rate 0.
//
// The random choice depends on the tape's seed and on `seed`. The tape's seed differs between steps
// and replicas, and is the same on every attempt of a step. With `seed` 0 the number of earlier
// such calls on the tape takes its place. So a retried step drops the same elements if it makes its
// calls in the same order. For a value without a tape (a constant, or any value in inference mode)
// the innermost tape on this thread counts. FailedPrecondition: there is none. InvalidArgument:
// rate is outside [0, 1).
Var Dropout(const Var& x, float rate, uint64_t seed = 0);

// Whether MatMul takes an operand with its last two axes exchanged. This makes no copy.
enum class Transpose { kNo, kYes };
// The matrix product [m, k] x [k, n] -> [m, n]; each operand may be transposed. Operands of rank 3
// are batches: both have the same leading dimension, which is not broadcast. Operands of rank 1 are
// refused.
Var MatMul(const Var& a, const Var& b, Transpose a_transposed = Transpose::kNo,
           Transpose b_transposed = Transpose::kNo);

// Padding as in tf.nn.conv2d. kValid: windows stay inside the image. kSame: there are ceil(extent /
// stride) windows along each axis. A convolution pads with zeros; a pool ignores positions outside
// the image. If the padding is odd, the larger half is below and at the right.
enum class Padding { kSame, kValid };
// Convolves images [batch, height, width, channels] with a kernel [height, width, channels,
// outputs] -> [batch, out_height, out_width, outputs]. `stride` applies to both directions. As in
// TensorFlow this is a correlation: the kernel is not mirrored. InvalidArgument, also: a kValid
// window is larger than the image.
Var Conv2D(const Var& x, const Var& kernel, int stride = 1, Padding padding = Padding::kSame);
// The maximum of each window x window square, for each channel: [batch, height, width, channels] ->
// [batch, out_height, out_width, channels]. The gradient goes to the first of equal elements, in
// row-major order.
Var MaxPool2D(const Var& x, int window, int stride, Padding padding = Padding::kValid);

// Normalizations along the last axis (rank >= 1), each example by itself. They have no state and
// are the same in training and inference.
//
// (x - mean) / sqrt(variance + epsilon) * scale + offset (Ba et al., "Layer normalization", 2016).
// `scale` and `offset` have the extent of the last axis.
Var LayerNorm(const Var& x, const Var& scale, const Var& offset, float epsilon = 1e-5f);
// x / sqrt(max(sum of squares, 1e-12)), so a row of zeros stays zero.
Var L2Normalize(const Var& x);

// The axes of a reduction: none, one or several. A negative axis counts from the end. kNoAxis means
// no axis: the value itself is not reduced. A reduction across replicas then only combines the
// replicas' values and keeps their shape.
class Axes {
 public:
  Axes(std::nullopt_t) {}
  Axes(int axis) : values_{axis} {}
  Axes(std::initializer_list<int> axes) : values_(axes) {}
  // For axes that are known only at run time.
  explicit Axes(absl::Span<const int> axes) : values_(axes.begin(), axes.end()) {}
  // The axes as they were given; empty for kNoAxis.
  const std::vector<int>& values() const { return values_; }

 private:
  std::vector<int> values_;
};
// No axis; see Axes.
inline constexpr std::nullopt_t kNoAxis = std::nullopt;

// Reductions. Reduced axes are dropped: [2, 3] over axis 0 -> [3]. Without `axes` all axes are
// reduced, and the result is a scalar. The gradient is broadcast back to the operand's shape. The
// sum of no elements is 0; their mean is NaN. InvalidArgument: an axis is outside [-rank, rank) or
// occurs twice.
Var ReduceSum(const Var& x);
Var ReduceSum(const Var& x, const Axes& axes);
Var ReduceMean(const Var& x);
Var ReduceMean(const Var& x, const Axes& axes);
// The maximum; of no elements it is -infinity. The gradient is shared evenly by all elements that
// equal the maximum.
Var ReduceMax(const Var& x, const Axes& axes);

// Operations that move elements. They take any dtype, and the gradient takes the inverse way.
//
// The same elements in another shape; shares the buffer. One dimension may be -1, which is
// inferred.
Var Reshape(const Var& x, const Shape& shape);
// Joins the parts along `axis`, which may be negative. They must have the same dtype and, except
// along `axis`, the same shape.
Var Concat(absl::Span<const Var> parts, int axis);
// Elements [begin, end) along `axis`, which may be negative. InvalidArgument: 0 <= begin <= end <=
// extent does not hold.
Var Slice(const Var& x, int axis, int64_t begin, int64_t end);
// Reorders the axes: axis i of the result is axis axes[i] of x. `axes` names each axis once; a
// negative one counts from the end.
Var Permute(const Var& x, std::initializer_list<int> axes);
// The rows of x (along axis 0) that `ids` names: ids of any shape and integer dtype -> ids.shape +
// row shape. The gradient is dense: the gradients of one row are added up. For rows of a variable
// use GradientTape::Lookup, which fetches only these rows. InvalidArgument: an id is outside [0,
// rows).
Var Gather(const Var& x, const Var& ids);
// Sums of consecutive rows: row i of the result is the sum of rows row_splits[i] to row_splits[i +
// 1] - 1. [n, ...] -> [batch, ...], with zeros for an empty list. InvalidArgument: row_splits is
// not an int64 [batch + 1] on the CPU that rises from 0 to n.
Var SegmentSum(const Var& rows, const Tensor& row_splits);
// The dot products of all pairs of rows (Naumov et al., "Deep learning recommendation model",
// 2019), without those of a row with itself: [batch, f, k] -> [batch, f (f - 1) / 2]. The order is
// rows i and j for i = 1, 2, ... and each j < i.
Var DotInteraction(const Var& features);
// Converts any dtype to any other. Floating to integer truncates toward 0, saturates at the ends of
// the range, and turns NaN into 0. To bool means "is not 0". The gradient flows only between
// floating types.
Var Cast(const Var& x, DType dtype);
// The value of x, as a constant: no gradient flows into x.
Var StopGradient(const Var& x);
Var Range(int64_t n);  // int64 [n]: 0, 1, ... n - 1; InvalidArgument: n < 0

// Losses. They return one loss per example (as tf.nn's *_cross_entropy_with_logits), so the caller
// who averages decides the weight of a partial batch. They are computed in a numerically stable
// form: no logit overflows. No gradient flows into labels, except into those of SquaredError.
//
// logits [batch, classes]; labels [batch] of class numbers in any integer dtype, or [batch,
// classes] of probabilities -> [batch]. InvalidArgument: a class number is outside [0, classes), or
// a probability is outside [0, 1]. The message has the label, its example and the number of
// classes.
Var SoftmaxCrossEntropy(const Var& logits, const Var& labels);
// logits and labels of the same shape, [batch], [batch, 1] or any other -> that shape. Labels are
// in [0, 1] and have any numeric dtype. InvalidArgument: a label is outside [0, 1]; the message
// names its example. Labels of -1 and +1 become 0 and 1 by LibsvmLabels of Dataset::Libsvm, or by
// Maximum(labels, 0).
Var SigmoidCrossEntropy(const Var& logits, const Var& labels);
// (prediction - label)^2. Both have the same shape -> that shape. Labels have any numeric dtype.
Var SquaredError(const Var& predictions, const Var& labels);

}  // namespace divvy

#endif  // DIVVY_OPS_OPS_H_
