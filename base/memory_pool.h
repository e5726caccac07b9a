// A cache of large blocks of memory.
#ifndef DIVVY_BASE_MEMORY_POOL_H_
#define DIVVY_BASE_MEMORY_POOL_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace divvy {

// Keeps returned blocks mapped, to be taken again. The C library gives large blocks back to the
// kernel, and the kernel clears each page of a new block when it is first touched: that costs more
// than the arithmetic that fills it (bench:ops, bench:pull_push).
//
// Blocks come in size classes, eight to each doubling, so less than a ninth of a block is unused.
// Thread-safe. A call may map or unmap memory, and does so without the lock.
class MemoryPool {
 public:
  // Use the C library for smaller blocks: a process may have only some 65,000 mappings.
  static constexpr size_t kSmallest = 128 << 10;

  // Where new blocks come from. Thread-safe.
  class Source {
   public:
    virtual ~Source() = default;
    // Memory of `size` bytes, a multiple of 4 KiB, aligned to 4 KiB or more. Null: there is none.
    virtual void* Map(size_t size) = 0;
    // REQUIRES: `data` came from Map(size), and nobody uses it any more.
    virtual void Unmap(void* data, size_t size) = 0;
    // Memory of this process alone, each block a mapping of its own. From 2 MiB on it consists of
    // huge pages if the kernel has them.
    static Source& Private();
  };

  // Keeps at most `limit_bytes` bytes that nobody has taken. REQUIRES: `clock` and `source` outlive
  // it.
  MemoryPool(size_t limit_bytes, const Clock& clock, Source& source = Source::Private());
  ~MemoryPool();
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;

  // The pool of this process, which keeps 256 MiB; never destroyed.
  static MemoryPool& Process();
  // Trims every pool of this process. ThreadPoolExecutor calls it once a second.
  static void TrimAll(absl::Duration unused);

  // Memory of at least `bytes` bytes with unspecified contents, aligned to 64 bytes or more. Null:
  // there is no memory. REQUIRES: bytes >= kSmallest.
  void* Take(size_t bytes);
  // REQUIRES: `data` came from Take(bytes), and nobody uses it any more.
  void Return(void* data, size_t bytes);
  // Unmaps the blocks that were returned `unused` ago or earlier.
  void Trim(absl::Duration unused);

  size_t kept_bytes() const;

 private:
  struct Kept {
    void* data;
    absl::Duration since;
  };

  const size_t limit_bytes_;
  const Clock& clock_;
  Source& source_;
  mutable Mutex mu_;
  size_t kept_bytes_ DIVVY_GUARDED_BY(mu_) = 0;
  // By class; the block returned last is at the back, and is taken first: a cache may hold it yet.
  std::map<size_t, std::vector<Kept>> kept_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_BASE_MEMORY_POOL_H_
