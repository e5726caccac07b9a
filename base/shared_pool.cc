#include "base/shared_pool.h"

#include <utility>

#include "base/status_macros.h"

namespace divvy {

absl::StatusOr<std::shared_ptr<SharedPool>> SharedPool::Create(size_t bytes, size_t kept_bytes) {
  ASSIGN_OR_RETURN(std::shared_ptr<SharedMemory> memory, SharedMemory::Create(bytes));
  return std::shared_ptr<SharedPool>(new SharedPool(std::move(memory), kept_bytes));
}

SharedPool::SharedPool(std::shared_ptr<SharedMemory> memory, size_t kept_bytes)
    : memory_(std::move(memory)), ranges_(*memory_), blocks_(kept_bytes, Clock::Real(), ranges_) {}

std::shared_ptr<SharedPool::Block> SharedPool::Take(size_t bytes) {
  void* const data = blocks_.Take(bytes);
  if (data == nullptr) return nullptr;
  return std::make_shared<Block>(shared_from_this(), static_cast<char*>(data), bytes);
}

SharedPool::Block::~Block() {
  if (!abandoned_) pool_->blocks_.Return(data_, size_);
}

size_t SharedPool::Block::offset() const {
  return static_cast<size_t>(data_ - pool_->memory_->data());
}

void* SharedPool::Ranges::Map(size_t size) {
  MutexLock lock(mu_);
  std::vector<void*>& unmapped = unmapped_[size];
  if (!unmapped.empty()) {
    void* const data = unmapped.back();
    unmapped.pop_back();
    return data;
  }
  if (memory_.size() - used_ < size) return nullptr;
  return memory_.data() + std::exchange(used_, used_ + size);
}

void SharedPool::Ranges::Unmap(void* data, size_t size) {
  memory_.Discard(static_cast<size_t>(static_cast<char*>(data) - memory_.data()), size);
  MutexLock lock(mu_);
  unmapped_[size].push_back(data);
}

}  // namespace divvy
