#include "ops/cuda/pinned_pool.h"

#include <iterator>

#include "base/size_class.h"

namespace divvy::cuda {
namespace {

constexpr size_t kSmallestPinned = 4096;  // memory is pinned in pages

}  // namespace

size_t PinnedPool::ClassOf(size_t bytes) { return SizeClass(bytes, kSmallestPinned, 4); }

PinnedPool::~PinnedPool() {
  for (const auto& [size, blocks] : free_) {
    for (void* const block : blocks) math_.FreePinned(block);
  }
}

// Pinning and unpinning happen without the lock, because they take long and wait for the devices.
void* PinnedPool::Take(size_t bytes) {
  const size_t size = ClassOf(bytes);
  std::vector<void*> unpinned;
  {
    MutexLock lock(mu_);
    if (void* const kept = TakeKept(size)) return kept;
    if (!Reserve(size, unpinned)) return nullptr;
  }
  for (void* const block : unpinned) math_.FreePinned(block);
  void* const data = math_.AllocatePinned(size);
  MutexLock lock(mu_);
  if (data != nullptr) {
    taken_.emplace(static_cast<char*>(data), size);
  } else {
    taken_bytes_ -= size;
    pinned_bytes_ -= size;
  }
  return data;
}

void PinnedPool::Return(void* data) {
  MutexLock lock(mu_);
  const auto block = taken_.find(static_cast<char*>(data));
  free_[block->second].push_back(data);
  taken_bytes_ -= block->second;
  taken_.erase(block);
}

bool PinnedPool::Owns(const void* data) const {
  MutexLock lock(mu_);
  const auto after = taken_.upper_bound(static_cast<const char*>(data));
  if (after == taken_.begin()) return false;
  const auto block = std::prev(after);
  return static_cast<const char*>(data) < block->first + block->second;
}

void* PinnedPool::TakeKept(size_t size) {
  std::vector<void*>& kept = free_[size];
  if (kept.empty()) return nullptr;
  void* const data = kept.back();
  kept.pop_back();
  taken_.emplace(static_cast<char*>(data), size);
  taken_bytes_ += size;
  return data;
}

bool PinnedPool::Reserve(size_t size, std::vector<void*>& unpinned) {
  if (taken_bytes_ + size > limit_bytes_) return false;
  for (auto& [kept_size, blocks] : free_) {
    while (pinned_bytes_ + size > limit_bytes_ && !blocks.empty()) {
      unpinned.push_back(blocks.back());
      blocks.pop_back();
      pinned_bytes_ -= kept_size;
    }
  }
  taken_bytes_ += size;
  pinned_bytes_ += size;
  return true;
}

}  // namespace divvy::cuda
