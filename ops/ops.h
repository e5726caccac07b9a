// Operations on Vars.
//
// Broadcasting is NumPy's: shapes are aligned at the right, 1 stretches, the gradient sums over
// what was stretched; operands share one dtype (only a C++ scalar adapts). Arithmetic takes float32
// and float64, on a GPU float16 and bfloat16 too (computed with as float32, each result rounded to
// nearest even); what only moves or casts elements takes any dtype. An operand that does not fit
// gives a failed Var with InvalidArgument that names the operation and the shapes. Batches may be
// empty. Used on the tape's thread; nothing here blocks, but for the fetch of operands that are
// pending.
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

// Element by element, with broadcasting: [2, 3] + [3] -> [2, 3]. A C++ scalar takes the other's
// dtype: x * 0.5f. Division is IEEE's: x / 0 is infinite or NaN.
Var operator+(const Var& a, const Var& b);
Var operator-(const Var& a, const Var& b);
Var operator*(const Var& a, const Var& b);
Var operator/(const Var& a, const Var& b);
Var operator-(const Var& a);

// Element by element: any shape -> the same; those of several operands broadcast. Outside their
// domain as the C library: Log(0) is -infinity, Sqrt(-1) and Pow(-1, 0.5) are NaN. Sigmoid,
// Softplus and Softmax do not overflow for any finite input. Gradients at ties are TensorFlow's.
Var Abs(const Var& x);  // gradient 0 at 0
Var Exp(const Var& x);
Var Log(const Var& x);
Var Sqrt(const Var& x);
Var Square(const Var& x);
// The gradient goes to the larger one, to `a` where they are equal.
Var Maximum(const Var& a, const Var& b);
// To the smaller one, to `a` where they are equal.
Var Minimum(const Var& a, const Var& b);
// Minimum(Maximum(x, low), high): the gradient goes to x from `low` to `high`, both included
Var Clip(const Var& x, const Var& low, const Var& high);
// The exponent's gradient is 0 where the base is not above 0.
Var Pow(const Var& base, const Var& exponent);
// gradient 0 at 0
Var Relu(const Var& x);
Var Sigmoid(const Var& x);
Var Tanh(const Var& x);
// x Phi(x), with the exact distribution function (Hendrycks and Gimpel, 2016; tf.nn.gelu with
// approximate=False)
Var Gelu(const Var& x);
// log(1 + e^x)
Var Softplus(const Var& x);
// Over the last axis; rank >= 1.
Var Softmax(const Var& x);

// Masks in the operands' dtype: 1 where it holds, else 0. Beside a NaN all are 0. Constants to the
// tape. Integers are compared after a Cast.
Var Less(const Var& a, const Var& b);
Var LessEqual(const Var& a, const Var& b);
Var Greater(const Var& a, const Var& b);
Var GreaterEqual(const Var& a, const Var& b);
Var Equal(const Var& a, const Var& b);
// a where `mask` (of any dtype) is not 0, else b; all three broadcast. The gradient goes to what
// was chosen; what was not may be NaN.
Var Where(const Var& mask, const Var& a, const Var& b);

// Each element is 0 with probability `rate`, else divided by 1 - rate (Srivastava et al., 2014;
// tf.nn.dropout). Which ones follows from the tape's seed (one for each step and replica, the same
// on every attempt) and from `seed`; where that is 0, from the number of such calls on the tape
// before. So a step that is tried again drops the same elements, if it makes its calls in the same
// order. A value that no derivative is kept for (a constant, all in inference mode) follows the
// youngest tape on this thread; FailedPrecondition: there is none. On a tape in inference mode, and
// with rate 0, x itself. InvalidArgument: rate outside [0, 1).
Var Dropout(const Var& x, float rate, uint64_t seed = 0);

// Whether an operand of MatMul is taken with its last two axes exchanged. Nothing is copied for it.
enum class Transpose { kNo, kYes };
// [m, k] x [k, n] -> [m, n], each operand as it stands or transposed; rank 3: the same leading
// dimension on both, no broadcasting; rank 1 is refused.
Var MatMul(const Var& a, const Var& b, Transpose a_transposed = Transpose::kNo,
           Transpose b_transposed = Transpose::kNo);

// tf.nn.conv2d's rules. kValid: the window keeps to the image. kSame: ceil(extent / stride) places,
// with zeros around (in a pool: nothing), the odd one below and at the right.
enum class Padding { kSame, kValid };
// Images [batch, height, width, channels] x kernel [height, width, channels, outputs] -> [batch,
// out_height, out_width, outputs]; one stride for both directions. A correlation, as in TensorFlow:
// the kernel is not mirrored. InvalidArgument too: a kValid window larger than the image.
Var Conv2D(const Var& x, const Var& kernel, int stride = 1, Padding padding = Padding::kSame);
// The largest of each window x window square, channel by channel; the gradient goes to the first of
// equals.
Var MaxPool2D(const Var& x, int window, int stride, Padding padding = Padding::kValid);

// Along the last axis (rank >= 1), example by example: no state, and the same in training and
// inference (Ba et al., "Layer normalization", 2016). scale and offset: [its extent].
// (x - mean) / sqrt(variance + epsilon) * scale + offset
Var LayerNorm(const Var& x, const Var& scale, const Var& offset, float epsilon = 1e-5f);
// x / sqrt(max(sum of squares, 1e-12))
Var L2Normalize(const Var& x);

// Which axes a reduction runs over: none (kNoAxis: it leaves a value as it is; across replicas
// only), one, or several; negative counts from the end.
class Axes {
 public:
  Axes(std::nullopt_t) {}
  Axes(int axis) : values_{axis} {}
  Axes(std::initializer_list<int> axes) : values_(axes) {}
  // known at run time
  explicit Axes(absl::Span<const int> axes) : values_(axes.begin(), axes.end()) {}
  // As given: empty for kNoAxis.
  const std::vector<int>& values() const { return values_; }

 private:
  std::vector<int> values_;
};
inline constexpr std::nullopt_t kNoAxis = std::nullopt;

// Reduced axes are dropped; without `axes`, all are: the result is a scalar. [2, 3] over axis 0 ->
// [3]. The gradient is spread over what was reduced. InvalidArgument: an axis outside [-rank, rank)
// or named twice. The sum of no elements is 0, their mean NaN.
Var ReduceSum(const Var& x);
Var ReduceSum(const Var& x, const Axes& axes);
Var ReduceMean(const Var& x);
Var ReduceMean(const Var& x, const Axes& axes);
// Of no elements: -infinity. The gradient is shared evenly by all that equal the maximum.
Var ReduceMax(const Var& x, const Axes& axes);

// What only moves elements takes any dtype; the gradient moves back.
// One dimension may be -1; shares the buffer.
Var Reshape(const Var& x, const Shape& shape);
// One dtype; the same shape but for `axis`, which may be negative.
Var Concat(absl::Span<const Var> parts, int axis);
// Elements [begin, end) along `axis`, which may be negative. InvalidArgument: not 0 <= begin <= end
// <= its extent.
Var Slice(const Var& x, int axis, int64_t begin, int64_t end);
// axis i of the result is axis axes[i] of x: each once; negative counts from the end
Var Permute(const Var& x, std::initializer_list<int> axes);
// Rows of axis 0, of any dtype: ids of any shape and integer dtype -> ids.shape + row shape. The
// gradient is dense and scattered back, those of one row added up (for a variable read by rows
// there is GradientTape::Lookup). InvalidArgument: an id outside [0, rows).
Var Gather(const Var& x, const Var& ids);
// Row i of the result is the sum of rows row_splits[i] to row_splits[i + 1]: [n, ...] -> [batch,
// ...], zeros for an empty list. row_splits: int64 [batch + 1] on the CPU, rising from 0 to n, else
// InvalidArgument.
Var SegmentSum(const Var& rows, const Tensor& row_splits);
// DLRM's pairwise dots (Naumov et al., "Deep learning recommendation model", 2019), no row with
// itself: [batch, f, k] -> [batch, f (f - 1) / 2]: the dot of rows i and j for i = 1, 2, ... and
// each j < i, in that order.
Var DotInteraction(const Var& features);
// Any dtype to any other. Floating to integer truncates toward 0, saturates, and takes NaN to 0;
// anything to bool is "not 0". The gradient flows between floating types only.
Var Cast(const Var& x, DType dtype);
// x itself, a constant to the tape.
Var StopGradient(const Var& x);
Var Range(int64_t n);  // int64 [n]: 0, 1, ...; InvalidArgument: n < 0

// Losses are per example (tf.nn's *_cross_entropy_with_logits): who averages decides how partial
// batches weigh. Computed in a stable form: no logit overflows. Labels are constants: no gradient
// flows into them, but for SquaredError's.
// logits [batch, classes], labels [batch] of any integer dtype, or [batch, classes] of
// probabilities -> [batch]. InvalidArgument: a label outside [0, classes), or a probability outside
// [0, 1]; the message has it, its example and the number of classes.
Var SoftmaxCrossEntropy(const Var& logits, const Var& labels);
// Both of one shape, [batch] or [batch, 1] (or any other) -> that shape; labels in [0, 1], any
// numeric dtype. InvalidArgument: a label outside [0, 1], with its example: -1 and +1 are made 0
// and 1 by Dataset::Libsvm's LibsvmLabels, or by Maximum(labels, 0).
Var SigmoidCrossEntropy(const Var& logits, const Var& labels);
// (prediction - label)^2. Both of one shape -> that shape; labels of any numeric dtype.
Var SquaredError(const Var& predictions, const Var& labels);

}  // namespace divvy

#endif  // DIVVY_OPS_OPS_H_
