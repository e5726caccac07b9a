// Memory of a device, used again and again: a step asks for the same sizes as the step before, and
// to ask the driver costs microseconds each time.
#ifndef DIVVY_OPS_CUDA_DEVICE_POOL_H_
#define DIVVY_OPS_CUDA_DEVICE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "base/mutex.h"
#include "ops/cuda/device_math.h"

namespace divvy::cuda {

// Of one device. What is given back may be used at once by kCompute, which is told everything in
// order, and by another queue when kCompute has come to the point at which it was given back.
// Points are numbers that rise. Blocks come in classes, eight to each doubling, so that at most a
// ninth of one is unused. Thread-safe.
class DevicePool {
 public:
  DevicePool(DeviceMath& math, int device) : math_(math), device_(device) {}
  // REQUIRES: all was returned.
  ~DevicePool() { Trim(); }
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // At least so many bytes for `queue`, where kCompute has come to `reached`. Null: no memory is
  // left, kept memory included.
  void* Take(Queue queue, size_t bytes, int64_t reached);
  // The same, but what is kept stays kept. Null: the device has no memory beside it.
  void* TakeIfRoom(Queue queue, size_t bytes, int64_t reached);
  // REQUIRES: taken. `point`: of kCompute, behind all that it was told to do with this.
  void Return(void* data, int64_t point);
  // Gives the device back what nobody has taken.
  void Trim();
  // What it keeps for later.
  size_t kept_bytes() const;

 private:
  struct Kept {
    void* data;
    int64_t point;
  };
  void* TakeKept(Queue queue, size_t size, int64_t reached);
  void* NoteTaken(void* data, size_t size);

  DeviceMath& math_;
  const int device_;
  mutable Mutex mu_;
  std::map<void*, size_t> taken_ DIVVY_GUARDED_BY(mu_);            // their class
  std::map<size_t, std::deque<Kept>> free_ DIVVY_GUARDED_BY(mu_);  // by class; their points rise
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_DEVICE_POOL_H_
