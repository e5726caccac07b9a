// Backend: the interface to arithmetic, with one implementation for each kind of device.
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

// Lists of consecutive rows: list i is rows row_splits[i] to row_splits[i + 1] - 1.
struct RowLists {
  Tensor row_splits;               // int64 [batch + 1]
  std::optional<Tensor> weights;   // [n], the rows' dtype; nullopt: all 1
  std::optional<Tensor> divisors;  // [batch], the rows' dtype; nullopt: all 1
};

// The arithmetic of one kind of device. Stateless and thread-safe. The caller checks shapes and
// dtypes.
//
// REQUIRES of every method, unless it says otherwise: tensors are on this device; their dtypes are
// equal, and float32 or float64 (on a GPU also float16 and bfloat16); result tensors are fresh
// (nobody else holds them) and have the right shape. Extents may be 0. On a GPU methods return
// before the result is computed. A returned error means bad data that was found while computing; a
// GPU may report it only at the next wait instead (ops/data_errors.h).
class Backend {
 public:
  virtual ~Backend() = default;

  virtual void Unary(UnaryOp op, const Tensor& x, Tensor& y) const = 0;
  // dx = gradient * op'(x). `kept` is x or y, as KeptForGradient says.
  virtual void UnaryGradient(UnaryOp op, const Tensor& kept, const Tensor& gradient,
                             Tensor& dx) const = 0;
  // y = op(a, b), with a and b broadcast to y's shape. On a GPU an operand of this method, AddThen
  // and Broadcast may also be a scalar (rank 0) on the CPU.
  virtual void Binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const = 0;
  // y = op(a + b) in one pass, with a and b broadcast to y's shape. Rounded once: the intermediate
  // sum of a 16-bit dtype is a float32. REQUIRES: KeptForGradient(op) is kOutput, so the gradient
  // does not need the sum.
  virtual void AddThen(UnaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const = 0;
  // y = scale * x, broadcast to y's shape.
  virtual void Broadcast(const Tensor& x, double scale, Tensor& y) const = 0;
  // The transpose of Broadcast: y = scale * (x summed over the axes along which y would be
  // stretched to x's shape). y has extent 1, or no axis, where x is summed.
  virtual void SumTo(const Tensor& x, double scale, Tensor& y) const = 0;
  // As SumTo with the maximum instead of the sum. A NaN counts as larger than every number. The
  // maximum of no elements is -infinity.
  virtual void MaxTo(const Tensor& x, Tensor& y) const = 0;
  // The sum of the squares of each tensor; they may have different dtypes. Waits for the device
  // once. An error: an earlier computation found bad data or failed.
  virtual absl::StatusOr<std::vector<double>> SumsOfSquares(
      absl::Span<const Tensor> values) const = 0;
  // y[i] = x[i] / (1 - rate), or 0 with probability `rate`. The choice depends only on (key, i), so
  // a key drops the same elements on every backend. The map is linear in x and symmetric, so the
  // gradient goes through the same call. REQUIRES: 0 <= rate < 1.
  virtual void Dropout(uint64_t key, double rate, const Tensor& x, Tensor& y) const = 0;

  virtual void MatMul(const MatMulArgs& args, const Tensor& a, const Tensor& b,
                      Tensor& c) const = 0;

  // Over the last axis.
  virtual void Softmax(const Tensor& x, Tensor& y) const = 0;
  virtual void SoftmaxGradient(const Tensor& y, const Tensor& gradient, Tensor& dx) const = 0;

  // Also over the last axis. The gradient is computed from x.
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
  // y: [batch, out_height, out_width, channels]. The gradient goes to the first of equal elements,
  // in row-major order. REQUIRES: every window covers a part of the image.
  virtual void MaxPool(const Window2D& window, const Tensor& x, Tensor& y) const = 0;
  virtual void MaxPoolGradient(const Window2D& window, const Tensor& x, const Tensor& y,
                               const Tensor& gradient, Tensor& dx) const = 0;

  // labels: int64 [batch], or probabilities in the shape and dtype of the logits. Writes loss
  // [batch], and softmax with the logits' shape. InvalidArgument: a label is outside [0, classes),
  // or a probability is outside [0, 1].
  virtual absl::Status SoftmaxCrossEntropy(const Tensor& logits, const Tensor& labels, Tensor& loss,
                                           Tensor& softmax) const = 0;
  // Replaces `softmax` with the gradient of the logits, in place.
  virtual void SoftmaxCrossEntropyGradient(const Tensor& labels, const Tensor& gradient,
                                           Tensor& softmax) const = 0;
  // InvalidArgument: a label is outside [0, 1].
  virtual absl::Status SigmoidCrossEntropy(const Tensor& logits, const Tensor& labels,
                                           Tensor& loss) const = 0;
  virtual void SigmoidCrossEntropyGradient(const Tensor& logits, const Tensor& labels,
                                           const Tensor& gradient, Tensor& dx) const = 0;

  // Converts between any two dtypes, as Cast of ops/ops.h.
  virtual void Cast(const Tensor& x, Tensor& y) const = 0;
  // Copies `rows` blocks of `block_bytes` bytes, of any dtype. Blocks begin `from_stride` and
  // `to_stride` bytes apart. Both buffers are in the memory of `device`.
  virtual void CopyBlocks(Device device, const void* from, int64_t from_stride, void* to,
                          int64_t to_stride, int64_t block_bytes, int64_t rows) const = 0;
  // Sets all elements to 0. Any dtype.
  virtual void Zero(Tensor& y) const = 0;
  // Axis i of y is axis axes[i] of x. Any dtype.
  virtual void Permute(const Tensor& x, absl::Span<const int> axes, Tensor& y) const = 0;
  // y[i] = x[ids[i]] for rows of axis 0. Any dtype. ids: int64 [n]. InvalidArgument: an id is
  // outside [0, rows of x).
  virtual absl::Status GatherRows(const Tensor& x, const Tensor& ids, Tensor& y) const = 0;
  // The transpose of GatherRows: y[r] = the sum of the rows i with ids[i] == r. REQUIRES:
  // GatherRows has checked the ids.
  virtual void ScatterAddRows(const Tensor& ids, const Tensor& rows, Tensor& y) const = 0;
  // Sums rows that have equal ids, in the order in which they stand; ids of the result rise and are
  // unique. Waits for the device. REQUIRES: ids are on the CPU (also those of the result) and rows
  // on this device.
  virtual absl::StatusOr<IndexedSlices> SumDuplicates(const IndexedSlices& slices) const = 0;
  // x: [batch, f, f] -> y: [batch, f (f - 1) / 2]: the elements below the diagonal, row by row.
  virtual void LowerTriangles(const Tensor& x, Tensor& y) const = 0;
  // The symmetric matrices with these elements below and above a zero diagonal.
  virtual void SymmetricFromTriangles(const Tensor& y, Tensor& x) const = 0;

  // y[i] = the sum of w[j] x[j] over the rows j of list i, divided by the list's divisor; zeros if
  // the divisor is 0. A row is a slice along axis 0 (rank >= 1).
  virtual void CombineRows(const RowLists& lists, const Tensor& x, Tensor& y) const = 0;
  // The gradient of CombineRows: x[j] = w[j] y[i] / divisor, where list i has row j.
  virtual void SpreadRows(const RowLists& lists, const Tensor& y, Tensor& x) const = 0;
  // Scales each row whose l2 norm is above max_norm down to that norm; and the gradient of this.
  virtual void ClipRows(const Tensor& x, double max_norm, Tensor& y) const = 0;
  virtual void ClipRowsGradient(const Tensor& x, double max_norm, const Tensor& gradient,
                                Tensor& dx) const = 0;

  // As UnaryGradient, and also sums dx over all axes but the last into `sums`. REQUIRES: dx has at
  // least one axis; the shape of `sums` is dx's last axis.
  virtual void UnaryGradientAndSums(UnaryOp op, const Tensor& kept, const Tensor& gradient,
                                    Tensor& dx, Tensor& sums) const = 0;
};

}  // namespace divvy::internal

#endif  // DIVVY_OPS_BACKEND_H_
