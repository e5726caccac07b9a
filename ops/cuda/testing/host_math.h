// Devices that are none: the kernels as the host's compiler makes them, run at once.
#ifndef DIVVY_OPS_CUDA_TESTING_HOST_MATH_H_
#define DIVVY_OPS_CUDA_TESTING_HOST_MATH_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "ops/cuda/kernel_math.h"

namespace divvy::cuda {

// Memory is the host's, counted.
class HostMath : public KernelMath {
 public:
  explicit HostMath(int num_devices);
  ~HostMath() override;

  int num_devices() const override { return static_cast<int>(devices_.size()); }
  const char* name(int device) const override { return devices_[device]->name.c_str(); }  // "host device 0", as it was numbered first
  const char* Choose(const int* devices, int count) override;
  void* Allocate(int device, size_t bytes) override;
  void Free(int device, void* data) override;
  void CopyIn(int device, void* to, const void* from, size_t bytes) override;
  const char* CopyOut(int device, void* to, const void* from, size_t bytes) override;
  const char* Synchronize(int device) override;
  Fault TakeFault(int device) override;
  void Zero(int device, void* data, size_t bytes) override;
  void MatMul(int device, const MatMulArgs& args, const Array& a, const Array& b, const Array& c) override;

  // What it has been told so far, while `keep_log`: "1 allocate 64", "1 kernels", "1 out 64" ... To be looked at while nothing computes.
  std::vector<std::string> log;
  bool keep_log = true;
  size_t free_bytes = ~size_t{0};  // of each device
  const char* error = nullptr;     // that every wait returns
  size_t bytes_in_use(int device) const;

 protected:
  Stream Use(int device) override;
  void Gemm(int device, const MatMulArgs& args, Element element, const void* a, const void* b, void* c, bool accumulate) override;
  Fault* fault(int device) override { return &devices_[device]->fault; }

 private:
  struct HostDevice {
    std::string name;
    mutable Mutex mu;
    std::map<void*, size_t> blocks DIVVY_GUARDED_BY(mu);
    Fault fault;  // of the threads that compute there, one at a time
  };
  void Log(int device, const std::string& what);

  Mutex log_mu_;
  std::vector<std::unique_ptr<HostDevice>> devices_;
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_TESTING_HOST_MATH_H_
