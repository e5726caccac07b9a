#include "ops/cuda/testing/host_clock.h"

#include <algorithm>

namespace divvy::cuda {

void HostClock::Kernel(int device, double multiplications) {
  MutexLock lock(mu_);
  now_ += model_.launch;
  double& queue = At(device, Queue::kCompute);
  queue = std::max(queue, now_) + std::max(model_.kernel, 2 * multiplications / model_.flops);
}

void HostClock::Copy(int device, Queue queue, size_t bytes) {
  const int engine = queue == Queue::kOut ? 1 : queue == Queue::kAcross ? 2 : 0;
  MutexLock lock(mu_);
  now_ += model_.call;
  double &free = engines_[device * kNumEngines + engine], &end = At(device, queue);
  end = free =
      std::max({end, free, now_}) + model_.copy + static_cast<double>(bytes) / model_.copied_bytes;
}

double HostClock::Point(int device, Queue queue) const {
  MutexLock lock(mu_);
  return queues_[device * kNumQueues + static_cast<int>(queue)];
}

void HostClock::Wait(int device, Queue queue, double point) {
  MutexLock lock(mu_);
  At(device, queue) = std::max(At(device, queue), point);
}

void HostClock::Await(double point) {
  MutexLock lock(mu_);
  now_ = std::max(now_, point) + model_.wait;
}

double HostClock::now() const {
  MutexLock lock(mu_);
  return now_;
}

}  // namespace divvy::cuda
