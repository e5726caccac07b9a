#include "ops/cuda/pinned_pool.h"

#include <iterator>

namespace divvy::cuda {
namespace {

constexpr size_t kSmallest = 4096;  // pages are what is pinned

// The smallest of 4, 5, 6, 7 and 8 times a power of two that holds so many bytes.
size_t ClassOf(size_t bytes) {
  size_t quarter = kSmallest / 4;
  while (quarter * 8 < bytes) quarter *= 2;
  size_t size = quarter * 4;
  while (size < bytes) size += quarter;
  return size;
}

}  // namespace

PinnedPool::~PinnedPool() {
  for (const auto& [size, blocks] : free_) {
    for (void* const block : blocks) math_.FreePinned(block);
  }
}

void* PinnedPool::Take(size_t bytes) {
  const size_t size = ClassOf(bytes);
  MutexLock lock(mu_);
  std::vector<void*>& kept = free_[size];
  void* data = nullptr;
  if (!kept.empty()) {
    data = kept.back();
    kept.pop_back();
  } else if (MakeRoom(size)) {
    data = math_.AllocatePinned(size);
    if (data != nullptr) pinned_bytes_ += size;
  }
  if (data != nullptr) taken_.emplace(static_cast<char*>(data), size);
  return data;
}

void PinnedPool::Return(void* data) {
  MutexLock lock(mu_);
  const auto block = taken_.find(static_cast<char*>(data));
  free_[block->second].push_back(data);
  taken_.erase(block);
}

bool PinnedPool::Owns(const void* data) const {
  MutexLock lock(mu_);
  const auto after = taken_.upper_bound(static_cast<const char*>(data));
  if (after == taken_.begin()) return false;
  const auto block = std::prev(after);
  return static_cast<const char*>(data) < block->first + block->second;
}

bool PinnedPool::MakeRoom(size_t bytes) {
  for (auto& [size, blocks] : free_) {
    while (pinned_bytes_ + bytes > limit_bytes_ && !blocks.empty()) {
      math_.FreePinned(blocks.back());
      blocks.pop_back();
      pinned_bytes_ -= size;
    }
  }
  return pinned_bytes_ + bytes <= limit_bytes_;
}

}  // namespace divvy::cuda
