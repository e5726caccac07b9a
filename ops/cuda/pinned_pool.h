// A cache of pinned host memory. Pinning memory takes longer than filling it.
#ifndef DIVVY_OPS_CUDA_PINNED_POOL_H_
#define DIVVY_OPS_CUDA_PINNED_POOL_H_

#include <cstddef>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "ops/cuda/device_math.h"

namespace divvy::cuda {

// Blocks come in size classes, four to each doubling, so at most a fifth of a block is unused.
// Thread-safe.
class PinnedPool {
 public:
  // Pins at most `limit_bytes`.
  PinnedPool(DeviceMath& math, size_t limit_bytes) : math_(math), limit_bytes_(limit_bytes) {}
  // REQUIRES: all was returned.
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // The class of a size: a returned block can be reused for every size of its class.
  static size_t ClassOf(size_t bytes);
  // Memory of at least `bytes` bytes. Null: the limit is reached, or the host has no more.
  void* Take(size_t bytes);
  // Returns memory to the cache. REQUIRES: it was taken, and no copy from or to it is in progress.
  void Return(void* data);
  // Whether a byte lies in a block that is taken.
  bool Owns(const void* data) const;

 private:
  void* TakeKept(size_t size) DIVVY_REQUIRES(mu_);
  // Reserves `size` more bytes. Adds to `unpinned` the free blocks that must first be returned to
  // the host. False: the limit is reached, and nothing changes.
  bool Reserve(size_t size, std::vector<void*>& unpinned) DIVVY_REQUIRES(mu_);

  DeviceMath& math_;
  const size_t limit_bytes_;
  mutable Mutex mu_;
  size_t pinned_bytes_ DIVVY_GUARDED_BY(mu_) = 0;
  size_t taken_bytes_ DIVVY_GUARDED_BY(mu_) = 0;
  // The class of each taken block, by its address.
  std::map<const char*, size_t> taken_ DIVVY_GUARDED_BY(mu_);
  // The free blocks of each class.
  std::map<size_t, std::vector<void*>> free_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_PINNED_POOL_H_
