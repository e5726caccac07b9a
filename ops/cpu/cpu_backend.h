// Arithmetic on the CPU: OpenBLAS for products, and plain loops, which the compiler vectorizes, for
// everything else.
#ifndef DIVVY_OPS_CPU_CPU_BACKEND_H_
#define DIVVY_OPS_CPU_CPU_BACKEND_H_

#include "ops/backend.h"

namespace divvy::internal {

// Each call blocks until the result is computed. Large ones use as many threads as SetBlasThreads
// allows (parallel.h). The results have the same bits for any number of threads and every
// processor, except products: their bits depend on both. Each family of methods has one source
// file. Sums of float32 into one number are accumulated in double. Sums over rows (the gradient of
// a bias) are accumulated in float32, because their loop is vectorized across columns.
class CpuBackend : public Backend {
 public:
  // elementwise.cc
  void Unary(UnaryOp op, const Tensor& x, Tensor& y) const override;
  void UnaryGradient(UnaryOp op, const Tensor& kept, const Tensor& gradient,
                     Tensor& dx) const override;
  void UnaryGradientAndSums(UnaryOp op, const Tensor& kept, const Tensor& gradient, Tensor& dx,
                            Tensor& sums) const override;
  void Binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const override;
  void AddThen(UnaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const override;
  void Broadcast(const Tensor& x, double scale, Tensor& y) const override;
  void SumTo(const Tensor& x, double scale, Tensor& y) const override;
  void MaxTo(const Tensor& x, Tensor& y) const override;
  absl::StatusOr<std::vector<double>> SumsOfSquares(absl::Span<const Tensor> values) const override;
  void Dropout(uint64_t key, double rate, const Tensor& x, Tensor& y) const override;
  // matmul.cc
  void MatMul(const MatMulArgs& args, const Tensor& a, const Tensor& b, Tensor& c) const override;
  // normalize.cc
  void Normalize(Norm norm, double epsilon, const Tensor& x, Tensor& y) const override;
  void NormalizeGradient(Norm norm, double epsilon, const Tensor& x, const Tensor& gradient,
                         Tensor& dx) const override;
  // convolution.cc
  void Conv2D(const Window2D& window, const Tensor& x, const Tensor& kernel,
              Tensor& y) const override;
  void Conv2DInputGradient(const Window2D& window, const Tensor& kernel, const Tensor& gradient,
                           Tensor& dx) const override;
  void Conv2DKernelGradient(const Window2D& window, const Tensor& x, const Tensor& gradient,
                            Tensor& dkernel) const override;
  // pool.cc
  void MaxPool(const Window2D& window, const Tensor& x, Tensor& y) const override;
  void MaxPoolGradient(const Window2D& window, const Tensor& x, const Tensor& y,
                       const Tensor& gradient, Tensor& dx) const override;
  // losses.cc
  void Softmax(const Tensor& x, Tensor& y) const override;
  void SoftmaxGradient(const Tensor& y, const Tensor& gradient, Tensor& dx) const override;
  absl::Status SoftmaxCrossEntropy(const Tensor& logits, const Tensor& labels, Tensor& loss,
                                   Tensor& softmax) const override;
  void SoftmaxCrossEntropyGradient(const Tensor& labels, const Tensor& gradient,
                                   Tensor& softmax) const override;
  absl::Status SigmoidCrossEntropy(const Tensor& logits, const Tensor& labels,
                                   Tensor& loss) const override;
  void SigmoidCrossEntropyGradient(const Tensor& logits, const Tensor& labels,
                                   const Tensor& gradient, Tensor& dx) const override;
  // cast.cc
  void Cast(const Tensor& x, Tensor& y) const override;
  // movement.cc
  void CopyBlocks(Device device, const void* from, int64_t from_stride, void* to, int64_t to_stride,
                  int64_t block_bytes, int64_t rows) const override;
  void Zero(Tensor& y) const override;
  void Permute(const Tensor& x, absl::Span<const int> axes, Tensor& y) const override;
  absl::Status GatherRows(const Tensor& x, const Tensor& ids, Tensor& y) const override;
  void ScatterAddRows(const Tensor& ids, const Tensor& rows, Tensor& y) const override;
  absl::StatusOr<IndexedSlices> SumDuplicates(const IndexedSlices& slices) const override;
  void LowerTriangles(const Tensor& x, Tensor& y) const override;
  void SymmetricFromTriangles(const Tensor& y, Tensor& x) const override;
  // rows.cc
  void CombineRows(const RowLists& lists, const Tensor& x, Tensor& y) const override;
  void SpreadRows(const RowLists& lists, const Tensor& y, Tensor& x) const override;
  void ClipRows(const Tensor& x, double max_norm, Tensor& y) const override;
  void ClipRowsGradient(const Tensor& x, double max_norm, const Tensor& gradient,
                        Tensor& dx) const override;
};

// Calls `visit` with a float or a double, the C++ type of `dtype`. REQUIRES: dtype is float32 or
// float64.
template <typename Visit>
void OnFloating(DType dtype, Visit&& visit) {
  if (dtype == DType::kFloat32) {
    visit(float{});
  } else {
    visit(double{});
  }
}

}  // namespace divvy::internal

#endif  // DIVVY_OPS_CPU_CPU_BACKEND_H_
