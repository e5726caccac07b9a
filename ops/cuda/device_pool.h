// A cache of device memory. A step needs the same sizes as the step before, and allocation by the
// driver takes microseconds each time.
#ifndef DIVVY_OPS_CUDA_DEVICE_POOL_H_
#define DIVVY_OPS_CUDA_DEVICE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

#include "base/mutex.h"
#include "ops/cuda/device_math.h"

namespace divvy::cuda {

// The memory cache of one device. Thread-safe.
//
// Returned memory can be reused by kCompute at once, since that queue runs everything in order.
// Another queue can reuse it when kCompute has reached the point at which it was returned. Points
// are increasing numbers. Blocks come in size classes, eight to each doubling, so at most a ninth
// of a block is unused.
class DevicePool {
 public:
  DevicePool(DeviceMath& math, int device) : math_(math), device_(device) {}
  // REQUIRES: all was returned.
  ~DevicePool() { Trim(); }
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;

  // Memory of at least `bytes` bytes for `queue`; kCompute has come to the point `reached`. Null:
  // no memory is left, even after the cache is freed.
  void* Take(Queue queue, size_t bytes, int64_t reached);
  // As Take, but does not free cached memory. Null: the device has no free memory beside the cache.
  void* TakeIfRoom(Queue queue, size_t bytes, int64_t reached);
  // Returns memory to the cache. `point` is a point of kCompute after all operations that use this
  // memory. REQUIRES: it was taken.
  void Return(void* data, int64_t point);
  // Frees the cached memory that nobody has taken.
  void Trim();
  // The bytes that are cached and not taken.
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
