// Blocks of memory that one other process may read or write.
#ifndef DIVVY_BASE_SHARED_POOL_H_
#define DIVVY_BASE_SHARED_POOL_H_

#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/memory_pool.h"
#include "base/mutex.h"
#include "base/shared_memory.h"

namespace divvy {

// Cuts a SharedMemory of this process into blocks. Blocks that were returned are kept for a while
// and taken again (MemoryPool). Thread-safe. Create and Take may map memory.
class SharedPool : public std::enable_shared_from_this<SharedPool> {
 public:
  // Of `bytes` addresses; only the pages that are written need memory. Keeps at most `kept_bytes`
  // that nobody has taken. Errors as SharedMemory::Create.
  static absl::StatusOr<std::shared_ptr<SharedPool>> Create(size_t bytes, size_t kept_bytes);

  // For SharedMemory::Open.
  const std::string& name() const { return memory_->name(); }

  // Memory with unspecified contents. Holds its pool.
  class Block {
   public:
    Block(std::shared_ptr<SharedPool> pool, char* data, size_t size)
        : pool_(std::move(pool)), data_(data), size_(size) {}
    // Returns the memory to the pool.
    ~Block();
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    char* data() const { return data_; }
    size_t size() const { return size_; }
    // From the beginning of the SharedMemory.
    size_t offset() const;
    // The other process may still use the block, at any time. The destructor then does not return
    // the memory, which goes with the pool.
    void Abandon() { abandoned_ = true; }

   private:
    const std::shared_ptr<SharedPool> pool_;
    char* const data_;
    const size_t size_;
    std::atomic<bool> abandoned_{false};
  };
  // A block aligned to 4 KiB. Null: there is no room for it. REQUIRES: bytes >=
  // MemoryPool::kSmallest.
  std::shared_ptr<Block> Take(size_t bytes);

 private:
  // Address ranges of the memory.
  class Ranges : public MemoryPool::Source {
   public:
    explicit Ranges(SharedMemory& memory) : memory_(memory) {}
    void* Map(size_t size) override;
    void Unmap(void* data, size_t size) override;

   private:
    SharedMemory& memory_;
    Mutex mu_;
    size_t used_ DIVVY_GUARDED_BY(mu_) = SharedMemory::kHeaderBytes;
    // Ranges without pages, by size.
    std::map<size_t, std::vector<void*>> unmapped_ DIVVY_GUARDED_BY(mu_);
  };

  SharedPool(std::shared_ptr<SharedMemory> memory, size_t kept_bytes);

  const std::shared_ptr<SharedMemory> memory_;
  Ranges ranges_;
  MemoryPool blocks_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_SHARED_POOL_H_
