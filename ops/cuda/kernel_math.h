// KernelMath: the arithmetic of a device's library, as kernels over parallel.h. A subclass for a
// device provides memory, matrix products and the streams of its kernels.
#ifndef DIVVY_OPS_CUDA_KERNEL_MATH_H_
#define DIVVY_OPS_CUDA_KERNEL_MATH_H_

#include <cstring>
#include <type_traits>

#include "base/half.h"
#include "ops/cuda/device_math.h"
#include "ops/cuda/parallel.h"

namespace divvy::cuda {

using internal::BinaryOp;
using internal::MatMulArgs;
using internal::Norm;
using internal::UnaryOp;
using internal::Window2D;

// Sums of a row are computed in double, as on the CPU. Each family of methods has one source file.
class KernelMath : public DeviceMath {
 public:
  void Configure(const DeviceOptions& options) override { options_ = options; }
  void SetReclaim(Reclaim reclaim, void* context) override {
    reclaim_ = reclaim, reclaim_context_ = context;
  }
  // Memory for the duration of a method. Null: there is none even after the cache is freed.
  void* AllocateScratch(int device, size_t bytes) {
    void* const data = Allocate(device, bytes);
    if (data != nullptr || reclaim_ == nullptr) return data;
    reclaim_(reclaim_context_, device);
    return Allocate(device, bytes);
  }
  // elementwise.cu
  void Unary(int device, UnaryOp op, const Array& x, const Array& y) override;
  void UnaryGradient(int device, UnaryOp op, const Array& kept, const Array& gradient,
                     const Array& dx) override;
  void UnaryGradientAndSums(int device, UnaryOp op, const Array& kept, const Array& gradient,
                            const Array& dx, const Array& sums) override;
  void Binary(int device, BinaryOp op, const Array& a, const Array& b, const Array& y) override;
  void AddThen(int device, UnaryOp op, const Array& a, const Array& b, const Array& y) override;
  void Broadcast(int device, const Array& x, double scale, const Array& y) override;
  void Dropout(int device, uint64_t key, double rate, const Array& x, const Array& y) override;
  void SigmoidCrossEntropy(int device, const Array& logits, const Array& labels,
                           const Array& loss) override;
  void SigmoidCrossEntropyGradient(int device, const Array& logits, const Array& labels,
                                   const Array& gradient, const Array& dx) override;
  // cast.cu
  void Cast(int device, const Array& x, const Array& y) override;
  // reduce.cu
  void SumTo(int device, const Array& x, double scale, const Array& y) override;
  void MaxTo(int device, const Array& x, const Array& y) override;
  void SumOfSquares(int device, const Array& x, double* sum) override;
  // rows.cu: computations on each row by itself
  void Softmax(int device, const Array& x, const Array& y) override;
  void SoftmaxGradient(int device, const Array& y, const Array& gradient, const Array& dx) override;
  void SoftmaxCrossEntropy(int device, const Array& logits, const Array& labels, const Array& loss,
                           const Array& softmax) override;
  void SoftmaxCrossEntropyGradient(int device, const Array& labels, const Array& gradient,
                                   const Array& softmax) override;
  void Normalize(int device, Norm norm, double epsilon, const Array& x, const Array& y) override;
  void NormalizeGradient(int device, Norm norm, double epsilon, const Array& x,
                         const Array& gradient, const Array& dx) override;
  void ClipRows(int device, const Array& x, double max_norm, const Array& y) override;
  void ClipRowsGradient(int device, const Array& x, double max_norm, const Array& gradient,
                        const Array& dx) override;
  void CombineRows(int device, const RowListArrays& lists, const Array& x, const Array& y) override;
  void SpreadRows(int device, const RowListArrays& lists, const Array& y, const Array& x) override;
  // convolution.cu
  void Conv2D(int device, const Window2D& window, const Array& x, const Array& kernel,
              const Array& y) override;
  void Conv2DInputGradient(int device, const Window2D& window, const Array& kernel,
                           const Array& gradient, const Array& dx) override;
  void Conv2DKernelGradient(int device, const Window2D& window, const Array& x,
                            const Array& gradient, const Array& dkernel) override;
  void MaxPool(int device, const Window2D& window, const Array& x, const Array& y) override;
  void MaxPoolGradient(int device, const Window2D& window, const Array& x, const Array& y,
                       const Array& gradient, const Array& dx) override;
  // movement.cu
  void CopyBlocks(int device, const void* from, int64_t from_stride, void* to, int64_t to_stride,
                  int64_t block_bytes, int64_t rows) override;
  void Permute(int device, const Array& x, const int* axes, const Array& y) override;
  void GatherRows(int device, const Array& x, const int64_t* ids, const Array& y) override;
  void LowerTriangles(int device, const Array& x, const Array& y) override;
  void SymmetricFromTriangles(int device, const Array& y, const Array& x) override;

  // duplicates.cu
  void ScatterAddRows(int device, const int64_t* ids, const Array& rows, const Array& y) override;
  void SumDuplicates(int device, const int64_t* ids, const Array& rows, int64_t* unique,
                     const Array& sums) override;

  // The most elements of a convolution's matrix of windows that are built at a time: 256 MB of
  // float32. At least one line of the output is built at a time, even if it is larger.
  int64_t most_window_elements = int64_t{1} << 26;

 protected:
  const DeviceOptions& options() const { return options_; }
  // Makes the device current for the calling thread, and returns the stream of its kernels.
  virtual Stream Use(int device) = 0;
  // A row-major matrix product, as MatMulArgs says.
  virtual void Gemm(int device, const MatMulArgs& args, Element element, const void* a,
                    const void* b, void* c) = 0;
  // The device's fault, in the device's memory.
  virtual Fault* fault(int device) = 0;

 private:
  DeviceOptions options_;
  Reclaim reclaim_ = nullptr;
  void* reclaim_context_ = nullptr;
};

// Memory for the duration of a method; freed when the device no longer uses it. If there is none,
// the device's next wait returns an error.
class Scratch {
 public:
  Scratch(KernelMath& math, int device, size_t bytes)
      : math_(math),
        device_(device),
        bytes_(bytes),
        data_(bytes == 0 ? nullptr : math.AllocateScratch(device, bytes)) {
    if (!is_there()) math.Note(device, kOutOfMemory);
  }
  ~Scratch() {
    if (data_ != nullptr) math_.Free(device_, data_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  // False: there is no memory, so the method must compute nothing.
  bool is_there() const { return bytes_ == 0 || data_ != nullptr; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  DeviceMath& math_;
  const int device_;
  const size_t bytes_;
  void* const data_;
};

DIVVY_HOST_DEVICE inline float Widened(BFloat16Bits value) { return value.ToFloat(); }
DIVVY_HOST_DEVICE inline float Widened(HalfBits value) {
#ifdef __CUDA_ARCH__
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(value.bits));
  return wide;
#else
  return value.ToFloat();
#endif
}

template <typename Bits>
DIVVY_HOST_DEVICE Bits Narrowed(float value) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<Bits, HalfBits>) {
    HalfBits narrow;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow.bits) : "f"(value));
    return narrow;
  }
#endif
  return Bits::FromFloat(value);
}

// Rounds to odd: `value` itself if it is a float, else the adjacent float whose last bit is 1.
// Rounding this float to fewer bits gives the same as rounding `value` directly, which is not true
// of the nearest float (S. Boldo, G. Melquiond, "When double rounding is odd", 2005).
DIVVY_HOST_DEVICE inline float RoundedToOdd(double value) {
  const auto nearest = static_cast<float>(value);
  if (!(static_cast<double>(nearest) != value) || value != value) return nearest;
  uint32_t bits = BitsOfFloat(nearest);
  const double magnitude = value < 0 ? -value : value,
               rounded = nearest < 0 ? -static_cast<double>(nearest) : static_cast<double>(nearest);
  if (rounded > magnitude) --bits;  // towards 0
  return FloatFromBits(bits | 1u);
}

// A float16 or bfloat16 in memory. It is read as a float, and rounded when it is written. A double
// is also rounded only once.
template <typename Bits>
struct Narrow {
  Bits bits;
  Narrow() = default;
  template <typename Number>
  DIVVY_HOST_DEVICE Narrow(Number value) : bits(Narrowed<Bits>(Wide(value))) {}
  DIVVY_HOST_DEVICE operator float() const { return Widened(bits); }

 private:
  template <typename Number>
  DIVVY_HOST_DEVICE static float Wide(Number value) {
    if constexpr (std::is_same_v<Number, double>) return RoundedToOdd(value);
    return static_cast<float>(value);
  }
};

// The type in which elements of T are computed.
template <typename T>
struct WideType {
  using type = T;
};
template <typename Bits>
struct WideType<Narrow<Bits>> {
  using type = float;
};
template <typename T>
using Wide = typename WideType<T>::type;

// Calls use(T{}) with the C++ type of `element`. REQUIRES: it is a floating type.
template <typename Use>
void WithFloating(Element element, Use&& use) {
  switch (element) {
    case Element::kFloat16: return use(Narrow<HalfBits>());
    case Element::kBFloat16: return use(Narrow<BFloat16Bits>());
    case Element::kFloat64: return use(double{});
    default: return use(float{});
  }
}

// Records a fault, unless the device already has one.
DIVVY_HOST_DEVICE inline void Report(Fault* fault, Fault::Kind kind, int64_t value,
                                     int64_t position, const Array& in) {
#ifdef __CUDA_ARCH__
  const bool is_first = atomicCAS(reinterpret_cast<int*>(&fault->kind), int{Fault::kNone},
                                  int{kind}) == int{Fault::kNone};
#else
  auto none = Fault::kNone;
  const bool is_first = __atomic_compare_exchange_n(&fault->kind, &none, kind, false,
                                                    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
#endif
  if (is_first) fault->value = value, fault->position = position, fault->in = in;
}

// Whether a label or probability is in [0, 1]. If not, records a fault.
template <typename T>
DIVVY_HOST_DEVICE bool IsInUnit(T label, Fault* fault, Fault::Kind kind, int64_t position,
                                const Array& in) {
  if (label >= T(0) && label <= T(1)) return true;
  const auto number = static_cast<double>(label);
  int64_t bits;
  memcpy(&bits, &number, sizeof(bits));
  Report(fault, kind, bits, position, in);
  return false;
}

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_KERNEL_MATH_H_
