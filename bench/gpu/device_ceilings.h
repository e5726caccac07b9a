// What a GPU does when CUDA's own libraries are called and nothing else: the ceilings that
// bench/gpu/gpu.cc holds Divvy's figures against.
#ifndef DIVVY_BENCH_GPU_DEVICE_CEILINGS_H_
#define DIVVY_BENCH_GPU_DEVICE_CEILINGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace divvy::bench {

enum class Precision { kFloat32, kTf32, kBFloat16 };

// [m, k] times [k, n], each in memory as it stands or transposed.
struct Product {
  int64_t m = 0, n = 0, k = 0;
  bool a_transposed = false, b_transposed = false;
};

// Those of a step of a perceptron with layers of these widths, from the inputs on: forward, and the
// gradients of its kernels and of all inputs but the first's.
std::vector<Product> PerceptronProducts(int64_t batch, const std::vector<int64_t>& widths);

// The first device. One thread at a time. Every method waits until the device is done; a call that
// CUDA refuses ends the process with CUDA's words.
class DeviceCeilings {
 public:
  // Null: there is no device that CUDA can use, and `why` says it in CUDA's words; or this is a
  // build without CUDA.
  static std::unique_ptr<DeviceCeilings> Open(std::string& why);
  virtual ~DeviceCeilings() = default;

  virtual std::string name() const = 0;
  // By cuBLAS, one after another, `times` times all of them. The operands are random numbers that
  // lie on the device.
  virtual void Multiply(Precision precision, const std::vector<Product>& products, int times) = 0;
  // Waits for all that this process has told the device, as the end of Multiply does: so that a
  // figure and its ceiling pay the same for waiting.
  virtual void Synchronize() = 0;
  // The most memory of the device that this process has held at once since the last call for
  // tensors, with what it keeps for later ones (TrimGpuMemory gives that back). What this class
  // itself holds is not counted. Null where it does not come from CUDA's pools, which alone count
  // it.
  virtual std::optional<int64_t> TakePeakBytes() = 0;
};

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_GPU_DEVICE_CEILINGS_H_
