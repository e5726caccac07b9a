// The arithmetic of a device's library as kernels over parallel.h. What is left to a device: memory, products, and where its kernels are queued.
#ifndef DIVVY_OPS_CUDA_KERNEL_MATH_H_
#define DIVVY_OPS_CUDA_KERNEL_MATH_H_

#include "ops/cuda/device_math.h"
#include "ops/cuda/parallel.h"

namespace divvy::cuda {

using internal::BinaryOp;
using internal::MatMulArgs;
using internal::Norm;
using internal::UnaryOp;
using internal::Window2D;

// Sums of a row are taken in double, as on the CPU. One source file for each family of methods.
class KernelMath : public DeviceMath {
 public:
  // elementwise.cu
  void Unary(int device, UnaryOp op, const Array& x, const Array& y) override;
  void UnaryGradient(int device, UnaryOp op, const Array& kept, const Array& gradient, const Array& dx) override;
  void Binary(int device, BinaryOp op, const Array& a, const Array& b, const Array& y) override;
  void Broadcast(int device, const Array& x, double scale, const Array& y) override;
  void Dropout(int device, uint64_t key, double rate, const Array& x, const Array& y) override;
  void SigmoidCrossEntropy(int device, const Array& logits, const Array& labels, const Array& loss) override;
  void SigmoidCrossEntropyGradient(int device, const Array& logits, const Array& labels, const Array& gradient, const Array& dx) override;
  // cast.cu
  void Cast(int device, const Array& x, const Array& y) override;
  // reduce.cu
  void SumTo(int device, const Array& x, double scale, const Array& y) override;
  void MaxTo(int device, const Array& x, const Array& y) override;
  void SumOfSquares(int device, const Array& x, double* sum) override;
  // rows.cu: what is computed for each row by itself
  void Softmax(int device, const Array& x, const Array& y) override;
  void SoftmaxGradient(int device, const Array& y, const Array& gradient, const Array& dx) override;
  void SoftmaxCrossEntropy(int device, const Array& logits, const Array& labels, const Array& loss, const Array& softmax) override;
  void SoftmaxCrossEntropyGradient(int device, const Array& labels, const Array& gradient, const Array& softmax) override;
  void Normalize(int device, Norm norm, double epsilon, const Array& x, const Array& y) override;
  void NormalizeGradient(int device, Norm norm, double epsilon, const Array& x, const Array& gradient, const Array& dx) override;
  void ClipRows(int device, const Array& x, double max_norm, const Array& y) override;
  void ClipRowsGradient(int device, const Array& x, double max_norm, const Array& gradient, const Array& dx) override;
  void CombineRows(int device, const RowListArrays& lists, const Array& x, const Array& y) override;
  void SpreadRows(int device, const RowListArrays& lists, const Array& y, const Array& x) override;
  // convolution.cu
  void Conv2D(int device, const Window2D& window, const Array& x, const Array& kernel, const Array& y) override;
  void Conv2DInputGradient(int device, const Window2D& window, const Array& kernel, const Array& gradient, const Array& dx) override;
  void Conv2DKernelGradient(int device, const Window2D& window, const Array& x, const Array& gradient, const Array& dkernel) override;
  void MaxPool(int device, const Window2D& window, const Array& x, const Array& y) override;
  void MaxPoolGradient(int device, const Window2D& window, const Array& x, const Array& y, const Array& gradient, const Array& dx) override;
  // movement.cu
  void CopyBlocks(int device, const void* from, int64_t from_stride, void* to, int64_t to_stride, int64_t block_bytes, int64_t rows) override;
  void Permute(int device, const Array& x, const int* axes, const Array& y) override;
  void GatherRows(int device, const Array& x, const int64_t* ids, const Array& y) override;
  void ScatterAddRows(int device, const int64_t* ids, const Array& rows, const Array& y) override;
  void LowerTriangles(int device, const Array& x, const Array& y) override;
  void SymmetricFromTriangles(int device, const Array& y, const Array& x) override;

 protected:
  // Makes the device the calling thread's; where its kernels go.
  virtual Stream Use(int device) = 0;
  // Row-major, as MatMulArgs says; `accumulate`: adds to c.
  virtual void Gemm(int device, const MatMulArgs& args, Element element, const void* a, const void* b, void* c, bool accumulate) = 0;
  // In the device's memory.
  virtual Fault* fault(int device) = 0;
};

// Memory for as long as a method runs; freed when the device is done with it.
class Scratch {
 public:
  Scratch(DeviceMath& math, int device, size_t bytes) : math_(math), device_(device), data_(bytes == 0 ? nullptr : math.Allocate(device, bytes)) {}
  ~Scratch() {
    if (data_ != nullptr) math_.Free(device_, data_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  DeviceMath& math_;
  const int device_;
  void* const data_;
};

// Calls use(T{}) with the C++ type. REQUIRES: float32 or float64.
template <typename Use>
void WithFloating(Element element, Use&& use) {
  element == Element::kFloat64 ? use(double{}) : use(float{});
}

// The first one on a device stands.
DIVVY_HOST_DEVICE inline void Report(Fault* fault, Fault::Kind kind, int64_t value, int64_t position, int64_t limit) {
#ifdef __CUDA_ARCH__
  const bool is_first = atomicCAS(reinterpret_cast<int*>(&fault->kind), int{Fault::kNone}, int{kind}) == int{Fault::kNone};
#else
  const bool is_first = fault->kind == Fault::kNone;
  if (is_first) fault->kind = kind;
#endif
  if (is_first) fault->value = value, fault->position = position, fault->limit = limit;
}

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_KERNEL_MATH_H_
