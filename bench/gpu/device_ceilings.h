// The speed of a GPU when only CUDA's own libraries are called: the ceilings with which
// bench/gpu/gpu.cc compares Divvy's figures.
#ifndef DIVVY_BENCH_GPU_DEVICE_CEILINGS_H_
#define DIVVY_BENCH_GPU_DEVICE_CEILINGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace divvy::bench {

enum class Precision { kFloat32, kTf32, kBFloat16 };

// [m, k] times [k, n]. Each operand may be stored transposed.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
};

// The products of one step of a perceptron whose layers have these widths, from the inputs on: the
// forward pass, the gradients of all kernels, and the gradients of the inputs of all layers but the
// first.
std::vector<Product> PerceptronProducts(int64_t batch, const std::vector<int64_t>& widths);

// Runs on the first device. Use it from one thread at a time. Every method waits until the device
// is done. If a call of CUDA fails, the process ends with CUDA's message.
class DeviceCeilings {
 public:
  // Null: CUDA finds no usable device, or this is a build without CUDA. `why` then has the reason.
  static std::unique_ptr<DeviceCeilings> Open(std::string& why);
  virtual ~DeviceCeilings() = default;

  virtual std::string name() const = 0;
  // Computes all products by cuBLAS, one after another, `times` times. The operands are random
  // numbers on the device.
  virtual void Multiply(Precision precision, const std::vector<Product>& products, int times) = 0;
  // Waits for all work of this process on the device, as Multiply does at its end, so that a figure
  // and its ceiling include the same wait.
  virtual void Synchronize() = 0;
  // The largest amount of device memory that this process has held for tensors since the last call,
  // including memory that is kept for later tensors (TrimGpuMemory releases it). The memory of this
  // class is not counted. nullopt: the tensors' memory does not come from CUDA's pools, which count
  // it.
  virtual std::optional<int64_t> TakePeakBytes() = 0;
};

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_GPU_DEVICE_CEILINGS_H_
