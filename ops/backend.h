// The seam behind which arithmetic is done: one implementation for each kind of device.
#ifndef DIVVY_OPS_BACKEND_H_
#define DIVVY_OPS_BACKEND_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ops/math.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// Lists of consecutive rows: list i is rows row_splits[i] .. row_splits[i+1].
struct RowLists {
  Tensor row_splits;               // int64 [batch + 1]
  std::optional<Tensor> weights;   // [n], the rows' dtype; none: all 1
  std::optional<Tensor> divisors;  // [batch], the rows' dtype; none: all 1
};

// The math of one kind of device. Stateless and thread-safe. Shapes and dtypes are the caller's
// care: REQUIRES of every method, unless it says otherwise: tensors on this device, dtypes equal
// and float32 or float64 (on a GPU float16 and bfloat16 too), result tensors fresh (nobody else
// holds them) and of the right shape. Extents may be 0. An error is one of the data, found while
// computing.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual void Unary(UnaryOp op, const Tensor& x, Tensor& y) const = 0;
  // dx = gradient * op'(x), from x or y as KeptForGradient says.
  virtual void UnaryGradient(UnaryOp op, const Tensor& kept, const Tensor& gradient,
                             Tensor& dx) const = 0;
  // a and b are broadcast to y's shape. On a GPU, here, in AddThen and in Broadcast, an operand may
  // be a scalar (rank 0) of the CPU.
  virtual void Binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const = 0;
  // y = op(a + b), a and b broadcast to y's shape, in one pass. Rounded once: what a narrow dtype's
  // sum is on the way is a float32. REQUIRES: KeptForGradient(op) is kOutput, so that nobody needs
  // the sum.
  virtual void AddThen(UnaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const = 0;
  // y = scale * x, broadcast to y's shape.
  virtual void Broadcast(const Tensor& x, double scale, Tensor& y) const = 0;
  // y = scale * (x summed over what y's shape would be stretched by to become x's). y's shape may
  // have 1s where x has more.
  virtual void SumTo(const Tensor& x, double scale, Tensor& y) const = 0;
  // As SumTo, with the largest element (a NaN is larger than all) instead of the sum; -infinity
  // where there is none.
  virtual void MaxTo(const Tensor& x, Tensor& y) const = 0;
  // Of each, which may be of any dtypes. Waits for the device, once. An error: what it found wrong,
  // or could not compute.
  virtual absl::StatusOr<std::vector<double>> SumsOfSquares(
      absl::Span<const Tensor> values) const = 0;
  // y[i] = x[i] / (1 - rate), or 0 with probability `rate`, which follows from (key, i): the same
  // key drops the same elements on every backend. Linear in x and its own transpose, so a gradient
  // goes back through it as a value goes forth. REQUIRES: 0 <= rate < 1.
  virtual void Dropout(uint64_t key, double rate, const Tensor& x, Tensor& y) const = 0;

  virtual void MatMul(const MatMulArgs& args, const Tensor& a, const Tensor& b,
                      Tensor& c) const = 0;

  // Over the last axis.
  virtual void Softmax(const Tensor& x, Tensor& y) const = 0;
  virtual void SoftmaxGradient(const Tensor& y, const Tensor& gradient, Tensor& dx) const = 0;

  // Over the last axis too. The gradient is computed from x.
  virtual void Normalize(Norm norm, double epsilon, const Tensor& x, Tensor& y) const = 0;
  virtual void NormalizeGradient(Norm norm, double epsilon, const Tensor& x, const Tensor& gradient,
                                 Tensor& dx) const = 0;

  // kernel: [height, width, channels, out]; y: [batch, out_height, out_width, out].
  virtual void Conv2D(const Window2D& window, const Tensor& x, const Tensor& kernel,
                      Tensor& y) const = 0;
  virtual void Conv2DInputGradient(const Window2D& window, const Tensor& kernel,
                                   const Tensor& gradient, Tensor& dx) const = 0;
  virtual void Conv2DKernelGradient(const Window2D& window, const Tensor& x, const Tensor& gradient,
                                    Tensor& dkernel) const = 0;
  // y: [batch, out_height, out_width, channels]. REQUIRES: every window covers a part of the image.
  // The gradient goes to the first of equals, row by row.
  virtual void MaxPool(const Window2D& window, const Tensor& x, Tensor& y) const = 0;
  virtual void MaxPoolGradient(const Window2D& window, const Tensor& x, const Tensor& y,
                               const Tensor& gradient, Tensor& dx) const = 0;

  // labels: int64 [batch], or like the logits. Fills loss [batch] and softmax, like the logits.
  // InvalidArgument: a label outside [0, classes), or a probability outside [0, 1].
  virtual absl::Status SoftmaxCrossEntropy(const Tensor& logits, const Tensor& labels, Tensor& loss,
                                           Tensor& softmax) const = 0;
  // Turns softmax into the gradient of the logits, in place.
  virtual void SoftmaxCrossEntropyGradient(const Tensor& labels, const Tensor& gradient,
                                           Tensor& softmax) const = 0;
  // InvalidArgument: a label outside [0, 1].
  virtual absl::Status SigmoidCrossEntropy(const Tensor& logits, const Tensor& labels,
                                           Tensor& loss) const = 0;
  virtual void SigmoidCrossEntropyGradient(const Tensor& logits, const Tensor& labels,
                                           const Tensor& gradient, Tensor& dx) const = 0;

  // Any two dtypes.
  virtual void Cast(const Tensor& x, Tensor& y) const = 0;
  // Any dtype, both in the memory of `device`: `rows` blocks of `block_bytes`, `from_stride` and
  // `to_stride` bytes apart.
  virtual void CopyBlocks(Device device, const void* from, int64_t from_stride, void* to,
                          int64_t to_stride, int64_t block_bytes, int64_t rows) const = 0;
  // Any dtype: all elements 0.
  virtual void Zero(Tensor& y) const = 0;
  // Any dtype: axis i of y is axis axes[i] of x.
  virtual void Permute(const Tensor& x, absl::Span<const int> axes, Tensor& y) const = 0;
  // Any dtype: y[i] = x[ids[i]], rows of axis 0. ids: int64 [n]. InvalidArgument: an id outside [0,
  // rows of x).
  virtual absl::Status GatherRows(const Tensor& x, const Tensor& ids, Tensor& y) const = 0;
  // The transposed map: y[r] = sum of the rows i with ids[i] == r. REQUIRES: GatherRows has checked
  // the ids.
  virtual void ScatterAddRows(const Tensor& ids, const Tensor& rows, Tensor& y) const = 0;
  // The rows with one id summed, in the order in which they stand: ids rising, each once. REQUIRES:
  // ids on the CPU, where the result's are too; rows on this device. Waits for it.
  virtual absl::StatusOr<IndexedSlices> SumDuplicates(const IndexedSlices& slices) const = 0;
  // x: [batch, f, f] -> y: [batch, f (f - 1) / 2], what lies under the diagonal, row by row.
  virtual void LowerTriangles(const Tensor& x, Tensor& y) const = 0;
  // The symmetric matrices with these elements under and over a diagonal of 0.
  virtual void SymmetricFromTriangles(const Tensor& y, Tensor& x) const = 0;

  // y[i] = sum of w[j] x[j] over the rows j of list i, divided by the list's divisor; zeros where
  // that is 0. A row is what lies under axis 0 (rank >= 1).
  virtual void CombineRows(const RowLists& lists, const Tensor& x, Tensor& y) const = 0;
  // The transposed map, which is its gradient: x[j] = w[j] y[i] / divisor.
  virtual void SpreadRows(const RowLists& lists, const Tensor& y, Tensor& x) const = 0;
  // Each row scaled down to the l2 norm max_norm where it is longer, and what that makes of a
  // gradient.
  virtual void ClipRows(const Tensor& x, double max_norm, Tensor& y) const = 0;
  virtual void ClipRowsGradient(const Tensor& x, double max_norm, const Tensor& gradient,
                                Tensor& dx) const = 0;

  // As UnaryGradient; and sums, whose shape is dx's last axis, becomes the sum of dx over all
  // others. REQUIRES: dx has at least one axis.
  virtual void UnaryGradientAndSums(UnaryOp op, const Tensor& kept, const Tensor& gradient,
                                    Tensor& dx, Tensor& sums) const = 0;
};

}  // namespace divvy::internal

#endif  // DIVVY_OPS_BACKEND_H_
