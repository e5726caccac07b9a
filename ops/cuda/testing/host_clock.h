// What a device would take, in numbers: so that overlap, waits and order can be judged where
// nothing takes any time.
#ifndef DIVVY_OPS_CUDA_TESTING_HOST_CLOCK_H_
#define DIVVY_OPS_CUDA_TESTING_HOST_CLOCK_H_

#include <vector>

#include "base/mutex.h"
#include "ops/cuda/device_math.h"

namespace divvy::cuda {

// In microseconds, of a recent GPU on PCIe.
struct HostModel {
  double launch = 2.3;         // of the host, for each kernel that it launches
  double kernel = 2;           // of the device, for each kernel
  double flops = 20e6;         // of products, in each microsecond
  double copy = 5;             // of an engine, for each copy
  double copied_bytes = 50e3;  // in each microsecond more
  double call = 1;             // of the host, for each copy that it asks for
  double wait = 15;            // of the host, until it goes on when what it waits for has come
};

// One thread tells the device things, one after the other, and each queue does its own in that
// order. Copies to a device share one engine, whatever their queue is, and so do copies from it.
// Thread-safe, though the time of several threads is one.
class HostClock {
 public:
  HostClock(const HostModel& model, int num_devices)
      : model_(model), queues_(num_devices * kNumQueues), engines_(num_devices * kNumEngines) {}

  // `multiplications`: of a product, and as many additions.
  void Kernel(int device, double multiplications = 0);
  void Copy(int device, Queue queue, size_t bytes);
  // When the queue has done what it was told so far.
  double Point(int device, Queue queue) const;
  void Wait(int device, Queue queue, double point);
  // The host waits.
  void Await(double point);
  double now() const;  // the host's

 private:
  static constexpr int kNumEngines = 3;  // to the device, from it, across
  double& At(int device, Queue queue) DIVVY_REQUIRES(mu_) {
    return queues_[device * kNumQueues + static_cast<int>(queue)];
  }

  const HostModel model_;
  mutable Mutex mu_;
  double now_ DIVVY_GUARDED_BY(mu_) = 0;
  // When each is free.
  std::vector<double> queues_ DIVVY_GUARDED_BY(mu_), engines_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_TESTING_HOST_CLOCK_H_
