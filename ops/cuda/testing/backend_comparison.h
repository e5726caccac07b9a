// Compares a device's arithmetic with the CPU's, on random shapes and numbers.
#ifndef DIVVY_OPS_CUDA_TESTING_BACKEND_COMPARISON_H_
#define DIVVY_OPS_CUDA_TESTING_BACKEND_COMPARISON_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/random.h"
#include "ops/backend.h"
#include "ops/cpu/cpu_backend.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// The types that a GPU computes in, and how many shapes a case draws.
inline constexpr DType kTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                   DType::kBFloat16};
inline constexpr int kTimes = 24;

// A base class of test fixtures. Use it on one thread at a time; a failure is that of the running
// test case.
class BackendComparison {
 public:
  static constexpr uint64_t kSeed = 20261121;
  // REQUIRES: `there` computes on `device` and outlives this object.
  BackendComparison(Device device, const Backend& there, uint64_t seed = kSeed)
      : device_(device), there_(there), random_(seed) {}

  // A random shape of rank `min_rank` to `max_rank`; each extent is 1 to 9.
  Shape AnyShape(int min_rank, int max_rank);
  // A shape that broadcasts to `full`.
  Shape Stretchable(const Shape& full);
  Tensor Values(DType dtype, const Shape& shape, double low = -2, double high = 2);
  // Random ids below `limit`.
  Tensor Ids(int64_t n, int64_t limit);

  // Runs `compute(backend, inputs, result)` on the device in `dtype` and on the CPU in float64,
  // from the same numbers, and compares the results of this shape.
  using Compute = std::function<void(const Backend&, const std::vector<Tensor>&, Tensor&)>;
  void Compare(const std::string& what, const std::vector<Tensor>& inputs, DType dtype,
               const Shape& shape, const Compute& compute, double slack = 1);
  // For operations that only move or convert elements: expects the same bits on both.
  void CompareBits(const std::string& what, const std::vector<Tensor>& inputs, DType dtype,
                   const Shape& shape, const Compute& compute);
  // The device's result, copied to the CPU.
  absl::StatusOr<Tensor> Computed(const std::vector<Tensor>& inputs, DType dtype,
                                  const Shape& shape, const Compute& compute);

  // A convolution and a pool of random windows, with their gradients.
  void CompareConvolutionAndPool(DType dtype);
  // Softmax, the norms and clipped rows of this shape, with their gradients.
  void CompareRows(DType dtype, const Shape& shape);
  // The loss of each example, and the gradient of the logits `x` for the gradient `g` of the
  // losses. `labels` are classes, or probabilities in x's shape.
  void CompareCrossEntropy(const Tensor& x, const Tensor& labels, const Tensor& g);

  // The tolerance: some units in the last place; relative above 1.
  static double Tolerance(DType dtype);
  void ExpectNear(const Tensor& result, const Tensor& expected, double tolerance);
  // On the CPU.
  Tensor Cast(const Tensor& x, DType dtype);
  Tensor AsDoubles(const Tensor& x) { return Cast(x, DType::kFloat64); }

 protected:
  const Device device_;
  const Backend& there_;
  Random random_;
  const CpuBackend cpu_;
};

}  // namespace divvy::internal

#endif  // DIVVY_OPS_CUDA_TESTING_BACKEND_COMPARISON_H_
