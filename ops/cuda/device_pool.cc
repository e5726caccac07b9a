#include "ops/cuda/device_pool.h"

#include <utility>

#include "base/size_class.h"

namespace divvy::cuda {
namespace {

constexpr size_t kSmallest = 512;  // the smallest allocation of a driver

size_t ClassOf(size_t bytes) { return SizeClass(bytes, kSmallest, 8); }

}  // namespace

void* DevicePool::TakeKept(Queue queue, size_t size, int64_t reached) {
  MutexLock lock(mu_);
  const auto found = free_.find(size);
  if (found == free_.end() || found->second.empty()) return nullptr;
  std::deque<Kept>& kept = found->second;
  void* data = nullptr;
  if (queue == Queue::kCompute) {  // the newest block may still be in a cache of the processor
    data = kept.back().data;
    kept.pop_back();
  } else if (kept.front().point <= reached) {
    data = kept.front().data;
    kept.pop_front();
  } else {
    return nullptr;
  }
  taken_.emplace(data, size);
  return data;
}

// The device is called without the lock, because the call may take long.
void* DevicePool::Take(Queue queue, size_t bytes, int64_t reached) {
  const size_t size = ClassOf(bytes);
  if (void* const kept = TakeKept(queue, size, reached)) return kept;
  void* data = math_.AllocateFor(device_, queue, size);
  if (data == nullptr) {
    Trim();
    data = math_.AllocateFor(device_, queue, size);
  }
  return NoteTaken(data, size);
}

void* DevicePool::TakeIfRoom(Queue queue, size_t bytes, int64_t reached) {
  const size_t size = ClassOf(bytes);
  if (void* const kept = TakeKept(queue, size, reached)) return kept;
  return NoteTaken(math_.AllocateFor(device_, queue, size), size);
}

void* DevicePool::NoteTaken(void* data, size_t size) {
  if (data == nullptr) return nullptr;
  MutexLock lock(mu_);
  taken_.emplace(data, size);
  return data;
}

void DevicePool::Return(void* data, int64_t point) {
  MutexLock lock(mu_);
  const auto block = taken_.find(data);
  free_[block->second].push_back({data, point});
  taken_.erase(block);
}

void DevicePool::Trim() {
  std::map<size_t, std::deque<Kept>> unused;
  {
    MutexLock lock(mu_);
    unused.swap(free_);
  }
  for (const auto& [size, blocks] : unused) {
    for (const Kept& block : blocks) math_.Free(device_, block.data);
  }
}

size_t DevicePool::kept_bytes() const {
  MutexLock lock(mu_);
  size_t total = 0;
  for (const auto& [size, blocks] : free_) total += size * blocks.size();
  return total;
}

}  // namespace divvy::cuda
