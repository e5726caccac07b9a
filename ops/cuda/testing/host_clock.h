// A model of the time that a device takes, so that tests can check overlap, waits and order on
// emulated devices, which take no time.
#ifndef DIVVY_OPS_CUDA_TESTING_HOST_CLOCK_H_
#define DIVVY_OPS_CUDA_TESTING_HOST_CLOCK_H_

#include <vector>

#include "base/mutex.h"
#include "ops/cuda/device_math.h"

namespace divvy::cuda {

// The times and rates of a recent GPU on PCIe, in microseconds.
struct HostModel {
  double launch = 2.3;         // of the host, to launch a kernel
  double kernel = 2;           // of the device, to begin a kernel
  double flops = 20e6;         // multiplications in a microsecond
  double copy = 5;             // of an engine, to begin a copy
  double copied_bytes = 50e3;  // then copied in a microsecond
  double call = 1;             // of the host, to issue a copy
  double wait = 15;            // of the host, to continue after an event that it waits for
};

// One thread issues operations to the device one after the other, and each queue runs its own in
// that order. All copies to a device share one engine, whatever their queue, and so do all copies
// from it. Thread-safe, but all threads share one time.
class HostClock {
 public:
  HostClock(const HostModel& model, int num_devices)
      : model_(model), queues_(num_devices * kNumQueues), engines_(num_devices * kNumEngines) {}

  // `multiplications` of a product, which has as many additions.
  void Kernel(int device, double multiplications = 0);
  void Copy(int device, Queue queue, size_t bytes);
  // The time at which the queue has done all operations that were issued so far.
  double Point(int device, Queue queue) const;
  void Wait(int device, Queue queue, double point);
  // The host waits until `point`.
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
  // The time at which each queue and each engine is free.
  std::vector<double> queues_ DIVVY_GUARDED_BY(mu_), engines_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_TESTING_HOST_CLOCK_H_
