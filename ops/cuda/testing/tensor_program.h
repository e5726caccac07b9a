// Runs copies and sums of tensors in an order that a seed determines, and compares each value with
// a model.
#ifndef DIVVY_OPS_CUDA_TESTING_TENSOR_PROGRAM_H_
#define DIVVY_OPS_CUDA_TESTING_TENSOR_PROGRAM_H_

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "ops/backend.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// All elements of a tensor have the same value, so its model is one number. Use a program on one
// thread at a time; several programs may run concurrently.
class TensorProgram {
 public:
  // Uses GPU:0 to GPU:num_devices-1, on which `backend` computes. REQUIRES: `backend` outlives it.
  TensorProgram(const Backend& backend, int num_devices, uint64_t seed)
      : backend_(backend), num_devices_(num_devices), random_(seed) {}

  // Fails the calling test if a value that is copied back differs from its model.
  void Run(int steps);

 private:
  struct Value {
    Tensor tensor;
    float value;
  };
  Value& Any() { return there_[random_.Below(there_.size())]; }
  Device AnyDevice() { return {Device::Kind::kGpu, static_cast<int>(random_.Below(num_devices_))}; }
  int64_t AnySize();
  void Upload();
  void UploadIntegers();
  void UseIntegers();
  void CopyAcross();
  void Add();
  void Forget();
  void Bring();

  const Backend& backend_;
  const int num_devices_;
  Random random_;
  std::vector<Value> there_;
  std::vector<Value> integers_;  // int64, which travel when they are used
};

// A vector of `n` float32 elements on the CPU, all with this value.
Tensor Filled(int64_t n, float value);
// REQUIRES: float32, on the CPU.
bool AllAre(const Tensor& tensor, float value);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_CUDA_TESTING_TENSOR_PROGRAM_H_
