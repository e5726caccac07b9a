#include "base/memory_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/size_class.h"

namespace divvy {
namespace {

constexpr size_t kProcessLimit = 256 << 20;
constexpr size_t kHugePage = 2 << 20;
constexpr size_t kPage = 4 << 10;

// The size of the mapping behind a class.
size_t MappedSize(size_t size) { return (size + kPage - 1) / kPage * kPage; }

class PrivateSource : public MemoryPool::Source {
 public:
  void* Map(size_t size) override {
    const size_t slack = size >= kHugePage ? kHugePage : 0;  // so that a huge page begins in it
    void* const mapped = mmap(nullptr, size + slack, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, /*offset=*/0);
    if (mapped == MAP_FAILED) return nullptr;
    if (slack == 0) return mapped;
    char* const begin = static_cast<char*>(mapped);
    char* const aligned = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(begin) + slack - 1) /
                                                  kHugePage * kHugePage);
    if (aligned != begin) munmap(begin, aligned - begin);
    if (const size_t behind = slack - (aligned - begin); behind > 0) munmap(aligned + size, behind);
    // A kernel without huge pages refuses, which costs speed alone.
    madvise(aligned, size, MADV_HUGEPAGE);
    return aligned;
  }

  // The kernel may refuse to cut a mapping in two. The pages then go all the same.
  void Unmap(void* data, size_t size) override {
    if (munmap(data, size) != 0) madvise(data, size, MADV_DONTNEED);
  }
};

// Every pool of this process.
struct Pools {
  Mutex mu;
  std::set<MemoryPool*> all DIVVY_GUARDED_BY(mu);
  static Pools& Get() {
    static Pools& pools = *new Pools;
    return pools;
  }
};

size_t ClassOf(size_t bytes) { return MappedSize(SizeClass(bytes, MemoryPool::kSmallest, 8)); }

}  // namespace

MemoryPool::Source& MemoryPool::Source::Private() {
  static Source& source = *new PrivateSource;
  return source;
}

MemoryPool::MemoryPool(size_t limit_bytes, const Clock& clock, Source& source)
    : limit_bytes_(limit_bytes), clock_(clock), source_(source) {
  Pools& pools = Pools::Get();
  MutexLock lock(pools.mu);
  pools.all.insert(this);
}

MemoryPool::~MemoryPool() {
  {
    Pools& pools = Pools::Get();
    MutexLock lock(pools.mu);
    pools.all.erase(this);
  }
  Trim(absl::ZeroDuration());
}

void MemoryPool::TrimAll(absl::Duration unused) {
  Pools& pools = Pools::Get();
  MutexLock lock(pools.mu);
  for (MemoryPool* const pool : pools.all) pool->Trim(unused);
}

MemoryPool& MemoryPool::Process() {
  static MemoryPool& pool = *new MemoryPool(kProcessLimit, Clock::Real());
  return pool;
}

void* MemoryPool::Take(size_t bytes) {
  const size_t size = ClassOf(bytes);
  {
    MutexLock lock(mu_);
    const auto found = kept_.find(size);
    if (found != kept_.end() && !found->second.empty()) {
      void* const data = found->second.back().data;
      found->second.pop_back();
      kept_bytes_ -= size;
      return data;
    }
  }
  if (void* const data = source_.Map(size)) return data;
  Trim(absl::ZeroDuration());
  return source_.Map(size);
}

void MemoryPool::Return(void* data, size_t bytes) {
  const size_t size = ClassOf(bytes);
  const absl::Duration now = clock_.Elapsed();
  {
    MutexLock lock(mu_);
    if (kept_bytes_ + size <= limit_bytes_) {
      kept_[size].push_back({data, now});
      kept_bytes_ += size;
      return;
    }
  }
  source_.Unmap(data, size);
}

void MemoryPool::Trim(absl::Duration unused) {
  std::vector<std::pair<void*, size_t>> unmapped;
  const absl::Duration last = clock_.Elapsed() - unused;
  {
    MutexLock lock(mu_);
    for (auto& [size, blocks] : kept_) {
      const auto end = std::find_if(blocks.begin(), blocks.end(),
                                    [last](const Kept& block) { return block.since > last; });
      for (auto block = blocks.begin(); block != end; ++block)
        unmapped.emplace_back(block->data, size);
      kept_bytes_ -= size * (end - blocks.begin());
      blocks.erase(blocks.begin(), end);
    }
  }
  for (const auto& [data, size] : unmapped) source_.Unmap(data, size);
}

size_t MemoryPool::kept_bytes() const {
  MutexLock lock(mu_);
  return kept_bytes_;
}

}  // namespace divvy
