// The rows of one shard in memory, cut into blocks.
#ifndef DIVVY_PS_SERVER_CORE_SHARD_H_
#define DIVVY_PS_SERVER_CORE_SHARD_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "protocol/messages.h"
#include "tensor/tensor.h"

namespace divvy {

// Divides the rows of a shard into blocks. Block b holds rows [b * rows_per_block, (b + 1) *
// rows_per_block). A block is read whole and written under its lock. The slots of a variable share
// the variable's blocks, row by row, so one lock covers a row and all its slots. Thread-safe:
// immutable except for the locks.
class Blocks {
 public:
  // A block has as many whole rows as fit in `block_bytes`, at least one. REQUIRES: rows >= 0,
  // row_bytes >= 0, block_bytes > 0.
  Blocks(int64_t rows, int64_t row_bytes, int64_t block_bytes);
  int64_t rows() const { return rows_; }
  int64_t rows_per_block() const { return rows_per_block_; }
  int64_t count() const { return static_cast<int64_t>(locks_.size()); }
  int64_t BlockOf(int64_t row) const { return row / rows_per_block_; }
  int64_t first_row(int64_t block) const { return block * rows_per_block_; }
  int64_t end_row(int64_t block) const { return std::min(rows_, (block + 1) * rows_per_block_); }
  Mutex& lock(int64_t block) const { return locks_[static_cast<size_t>(block)]; }

  // The positions in `rows`, sorted by row, and so by block. Occurrences of the same row keep their
  // order. REQUIRES: each row is in [0, rows()).
  std::vector<int64_t> OrderByBlock(absl::Span<const int64_t> rows) const;
  // Calls visit(block, begin, end) for each block that holds some of `n` rows in rising order:
  // row_at(i) lies in it for i in [begin, end).
  template <typename RowAt, typename Visit>
  void ForEachBlock(size_t n, const RowAt& row_at, const Visit& visit) const {
    for (size_t i = 0; i < n;) {
      const size_t begin = i;
      const int64_t block = BlockOf(row_at(i)), end = end_row(block);
      while (i < n && row_at(i) < end) ++i;
      visit(block, begin, i);
    }
  }
  // The part of `order` (from OrderByBlock) that belongs to `block`.
  absl::Span<const int64_t> PositionsIn(int64_t block, absl::Span<const int64_t> rows,
                                        absl::Span<const int64_t> order) const;

 private:
  const int64_t rows_, rows_per_block_;
  // Held only while a block's bytes are copied or changed.
  mutable std::vector<Mutex> locks_;
};

// One shard. Immutable except for its bytes and its version. The bytes are guarded by the lock of
// their block; the thread that makes the shard needs no lock until others know it. The version is
// guarded by the core's lock.
class Shard {
 public:
  // OK if Create accepts `spec`. InvalidArgument, naming the shard: fields that contradict each
  // other, a dtype that no tensor has, an initializer that is invalid or not EvaluatedPerRow, or a
  // slot whose rows differ from its variable's. `variable` is the spec of slot 0 for another slot,
  // and null for slot 0.
  static absl::Status Check(const ShardSpec& spec, const ShardSpec* variable);

  // Allocates a shard without values. The caller then calls Initialize for each block, or fills the
  // rows itself. ResourceExhausted: no memory. REQUIRES: Check is OK.
  static absl::StatusOr<std::shared_ptr<Shard>> Create(ShardSpec spec, uint64_t job_seed,
                                                       int64_t block_bytes, const Shard* variable);

  // Computes the initial values of a block. They depend only on the spec and the job's seed, not on
  // how the variable is cut. REQUIRES: no other thread knows the shard yet, or calls this for the
  // same block.
  absl::Status Initialize(int64_t block);

  // Whether it was made from an equal spec and seed.
  bool MadeFrom(const ShardSpec& spec, uint64_t job_seed) const;

  const ShardSpec& spec() const { return spec_; }
  const Blocks& blocks() const { return *blocks_; }
  int64_t row_elements() const { return row_elements_; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t size_bytes() const { return values_.size_bytes(); }
  char* row(int64_t row) { return data_ + row * row_bytes_; }
  const char* row(int64_t row) const { return data_ + row * row_bytes_; }
  template <typename T>
  T* row_as(int64_t index) {
    return reinterpret_cast<T*>(row(index));
  }  // REQUIRES: T is the type of the shard's dtype

  // Copies the values. Each block is whole, but while commits run the blocks may be of different
  // moments. ResourceExhausted: no memory.
  absl::StatusOr<Tensor> Copy() const;

  uint64_t version = 0;  // commits applied

 private:
  Shard(ShardSpec spec, uint64_t job_seed, std::shared_ptr<const Blocks> blocks, Tensor values);

  const ShardSpec spec_;
  const uint64_t job_seed_;
  const std::shared_ptr<const Blocks> blocks_;
  const int64_t row_elements_, row_bytes_;
  Tensor values_;  // never handed out: its buffer is written in place
  char* const data_;
};

using ShardTable = std::map<ShardKey, std::shared_ptr<Shard>>;

// The shard's name for messages, such as "dense/w, part 2".
std::string ShardText(const ShardSpec& spec);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_SHARD_H_
