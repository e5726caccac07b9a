// Pinned memory of the host, used again and again: to pin memory takes longer than to fill it.
#ifndef DIVVY_OPS_CUDA_PINNED_POOL_H_
#define DIVVY_OPS_CUDA_PINNED_POOL_H_

#include <cstddef>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "ops/cuda/device_math.h"

namespace divvy::cuda {

// Blocks come in classes, four to each doubling, so that at most a fifth of one is unused.
// Thread-safe.
class PinnedPool {
 public:
  // Pins at most `limit_bytes`.
  PinnedPool(DeviceMath& math, size_t limit_bytes) : math_(math), limit_bytes_(limit_bytes) {}
  // REQUIRES: all was returned.
  ~PinnedPool();
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;

  // What is returned serves every size of its class.
  static size_t ClassOf(size_t bytes);
  // At least so many bytes. Null: the limit is reached, or the host gives no more.
  void* Take(size_t bytes);
  // REQUIRES: taken, and no copy of it is under way.
  void Return(void* data);
  // Whether a byte lies in a block that is taken.
  bool Owns(const void* data) const;

 private:
  void* TakeKept(size_t size) DIVVY_REQUIRES(mu_);
  // Counts `size` more as taken. What nobody has taken and must go back to the host first is added
  // to `unpinned`. False: the limit is reached, nothing happens.
  bool Reserve(size_t size, std::vector<void*>& unpinned) DIVVY_REQUIRES(mu_);

  DeviceMath& math_;
  const size_t limit_bytes_;
  mutable Mutex mu_;
  size_t pinned_bytes_ DIVVY_GUARDED_BY(mu_) = 0;
  size_t taken_bytes_ DIVVY_GUARDED_BY(mu_) = 0;
  // By their first byte: their class.
  std::map<const char*, size_t> taken_ DIVVY_GUARDED_BY(mu_);
  // By class.
  std::map<size_t, std::vector<void*>> free_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_PINNED_POOL_H_
