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
#include "cluster/messages.h"
#include "tensor/tensor.h"

namespace divvy {

// Rows [block * rows_per_block, + rows_per_block) are one block: read whole, written under its
// lock. A variable's slots share the blocks of the variable, row by row, so that one lock covers a
// row and all its slots.
class Blocks {
 public:
  // Whole rows up to `block_bytes`, at least one. REQUIRES: rows >= 0, row_bytes >= 0, block_bytes
  // > 0.
  Blocks(int64_t rows, int64_t row_bytes, int64_t block_bytes);
  int64_t rows() const { return rows_; }
  int64_t rows_per_block() const { return rows_per_block_; }
  int64_t count() const { return static_cast<int64_t>(locks_.size()); }
  int64_t BlockOf(int64_t row) const { return row / rows_per_block_; }
  int64_t first_row(int64_t block) const { return block * rows_per_block_; }
  int64_t end_row(int64_t block) const { return std::min(rows_, (block + 1) * rows_per_block_); }
  Mutex& lock(int64_t block) const { return locks_[static_cast<size_t>(block)]; }

  // Positions in `rows` by block, within a block as given: an occurrence never overtakes another of
  // the same row. REQUIRES: each is in [0, rows()).
  std::vector<int64_t> OrderByBlock(absl::Span<const int64_t> rows) const;
  // The part of that order that belongs to `block`.
  absl::Span<const int64_t> PositionsIn(int64_t block, absl::Span<const int64_t> rows,
                                        absl::Span<const int64_t> order) const;

 private:
  const int64_t rows_, rows_per_block_;
  // Held while a block's bytes are copied or changed, for nothing else.
  mutable std::vector<Mutex> locks_;
};

// Immutable but for its bytes and its version. Bytes: under the lock of their block; who makes the
// shard needs none until others know it. Version: under the core's lock.
class Shard {
 public:
  // OK if Create can make it. InvalidArgument, naming the shard: fields that contradict each other,
  // a dtype that no tensor has, an initializer that is not EvaluatedPerRow or not valid, or a slot
  // whose rows are not its variable's. `variable`: the shard whose slot this is, null for slot 0.
  static absl::Status Check(const ShardSpec& spec, const ShardSpec* variable);

  // Memory without values yet. ResourceExhausted: there is none. REQUIRES: Check is OK.
  static absl::StatusOr<std::shared_ptr<Shard>> Create(ShardSpec spec, uint64_t job_seed,
                                                       int64_t block_bytes, const Shard* variable);

  // Computes the first values of a block. Pure but for these bytes: the same however the variable
  // is cut. REQUIRES: nobody else knows the shard yet.
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
  }  // REQUIRES: T is its dtype's

  // A copy, each block whole, of no one moment while commits run. ResourceExhausted: no memory.
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

// "dense/w, part 2": for messages.
std::string ShardText(const ShardSpec& spec);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_SHARD_H_
