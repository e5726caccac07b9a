// The rows of one shard in memory, cut into blocks.
#ifndef DIVVY_PS_SERVER_CORE_SHARD_H_
#define DIVVY_PS_SERVER_CORE_SHARD_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/breakable.h"
#include "base/mutex.h"
#include "protocol/messages.h"
#include "ps_server/core/table/table_shard.h"
#include "tensor/scattered_tensor.h"
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
//
// A reply to a pull can borrow a block's memory instead of copying it. A writer that meets such a
// block copies the block to another place and writes there. The next writer or borrower that finds
// the block's own place free moves the block back. So a shard can take up to twice the memory of
// its values: for blocks that were borrowed and written at the same time, until they are used
// again.
//
// A part of a dynamic table is a shard whose rows are buckets and whose blocks are the segments of
// table(). It has no values of its own: of the functions below, those for rows, lending and copies
// are for shards without a table.
class Shard {
 public:
  // OK if Create accepts `spec`. InvalidArgument, naming the shard: fields that contradict each
  // other, a dtype that no tensor has, an initializer that is invalid or not EvaluatedPerRow, a
  // slot whose rows differ from its variable's, or a table that is no whole buckets of float32.
  // `variable` is the spec of slot 0 for another slot, and null for slot 0.
  static absl::Status Check(const ShardSpec& spec, const ShardSpec* variable);

  // Allocates a shard without values. The caller then calls Initialize for each block, or fills the
  // rows itself. `memory` limits the rows of a table. ResourceExhausted: no memory. REQUIRES: Check
  // is OK.
  static absl::StatusOr<std::shared_ptr<Shard>> Create(
      ShardSpec spec, uint64_t job_seed, int64_t block_bytes, const Shard* variable,
      std::shared_ptr<TableMemory> memory = std::make_shared<TableMemory>());

  // Computes the initial values of a block. They depend only on the spec and the job's seed, not on
  // how the variable is cut. REQUIRES: no other thread knows the shard yet, or calls this for the
  // same block.
  absl::Status Initialize(int64_t block);

  // Whether it was made from an equal spec and seed. Of a table, options, initializer and seed do
  // not count: the options may change (TableShard::ChangeOptions; spec() has those with which it
  // was made), and it keeps the others.
  bool MadeFrom(const ShardSpec& spec, uint64_t job_seed) const;

  const ShardSpec& spec() const { return spec_; }
  const Blocks& blocks() const { return *blocks_; }
  // Null: it is no part of a table. Thread-safe, whoever holds a lock.
  TableShard* table() const { return table_.get(); }
  int64_t row_elements() const { return row_elements_; }
  int64_t row_bytes() const { return row_bytes_; }
  int64_t size_bytes() const { return values_.size_bytes(); }
  // A row of a block. REQUIRES: the caller holds the block's lock.
  char* row(int64_t block, int64_t row) {
    return places_[static_cast<size_t>(block)].now().data +
           (row - blocks_->first_row(block)) * row_bytes_;
  }
  const char* row(int64_t block, int64_t row) const {
    return const_cast<Shard*>(this)->row(block, row);
  }
  template <typename T>
  T* row_as(int64_t block, int64_t index) {
    return reinterpret_cast<T*>(row(block, index));
  }  // REQUIRES: T is the type of the shard's dtype
  // A row of a new shard. All rows lie one behind another. REQUIRES: no other thread knows the
  // shard yet.
  char* new_row(int64_t row) { return data_ + row * row_bytes_; }

  // Whether its blocks are lent. Not if single rows are written: each would cost the copy of a
  // block. Thread-safe.
  bool lends() const { return lends_.load(std::memory_order_relaxed); }
  // Single rows are being written.
  void StopLending() { lends_.store(false, std::memory_order_relaxed); }

  // Appends the bytes of a block to `values`, without a copy. They stay as they are as long as
  // `values` or one of its Pieces exists. REQUIRES: the caller holds the block's lock.
  static void Lend(const std::shared_ptr<Shard>& shard, int64_t block, ScatteredTensor& values);
  // Call it before the rows of a block are changed. Ends the process if there is no memory for a
  // copy. REQUIRES: the caller holds the block's lock.
  void PrepareWrite(int64_t block) {
    Places& places = places_[static_cast<size_t>(block)];
    if (places.other != nullptr && !IsLent(places.own))
      MoveHome(block);
    else if (IsLent(places.now()))
      MoveAway(block);
  }

  // Copies the values. Each block is whole, but while commits run the blocks may be of different
  // moments. ResourceExhausted: no memory.
  absl::StatusOr<Tensor> Copy() const;

  uint64_t version = 0;  // commits applied

  // How much the shard is used (SyncReply::Load). All rows are read or written. Thread-safe.
  void CountUse();
  // `row_at(i)` is read or written, for i in [0, n): the number of a row, or of a key's bucket in
  // this shard. Thread-safe. REQUIRES: the rows are in the shard.
  template <typename RowAt>
  void CountUse(size_t n, const RowAt& row_at) {
    // What a row costs beside its bytes: its number, and the search for it.
    constexpr int64_t kBesideARow = 64;
    constexpr int64_t kParts = SyncReply::Load::kParts;
    const double parts_of_row = static_cast<double>(kParts) / static_cast<double>(num_rows());
    std::array<uint64_t, kParts> named{};
    for (size_t i = 0; i < n; ++i)
      ++named[std::min<size_t>(kParts - 1,
                               static_cast<size_t>(static_cast<double>(row_at(i)) * parts_of_row))];
    for (size_t part = 0; part < named.size(); ++part)
      AddUse(part, named[part] * static_cast<uint64_t>(used_row_bytes() + kBesideARow));
  }
  std::vector<uint64_t> used_bytes() const;
  // The sum of used_bytes() that was last told. The core's lock guards it.
  uint64_t told_use = 0;

 private:
  // Where the bytes of a block can be.
  struct Place {
    char* data = nullptr;
    // A borrower comes under the block's lock, and goes at any time.
    std::atomic<int> borrowers{0};
  };
  struct OtherPlace : Place {
    Tensor memory;
  };
  struct Places {
    Place own;
    // Null: the block is at its own place.
    std::shared_ptr<OtherPlace> other;
    Place& now() { return other != nullptr ? *other : own; }
  };
  Shard(ShardSpec spec, uint64_t job_seed, std::shared_ptr<const Blocks> blocks, Tensor values,
        std::shared_ptr<TableMemory> memory);
  // Of a table: buckets.
  int64_t num_rows() const { return spec_.shape.rows(); }
  int64_t used_row_bytes() const;
  void AddUse(size_t part, uint64_t bytes) {
    if (bytes > 0) used_bytes_[part].fetch_add(bytes, std::memory_order_relaxed);
  }
  static bool IsLent(const Place& place) {
    return RuleHolds(Rule::kLentBlocksDoNotChange) &&
           place.borrowers.load(std::memory_order_acquire) > 0;
  }
  void MoveHome(int64_t block);
  void MoveAway(int64_t block);
  size_t BlockBytes(int64_t block) const {
    return static_cast<size_t>((blocks_->end_row(block) - blocks_->first_row(block)) * row_bytes_);
  }

  const ShardSpec spec_;
  const uint64_t job_seed_;
  std::shared_ptr<const Blocks> blocks_;  // set in the constructor
  const int64_t row_elements_, row_bytes_;
  // The own places of all blocks. Never handed out as a tensor: its buffer is written in place.
  Tensor values_;
  char* const data_;
  // of each block, guarded by its lock
  std::vector<Places> places_;
  std::atomic<bool> lends_{true};
  // By part of the rows.
  std::array<std::atomic<uint64_t>, SyncReply::Load::kParts> used_bytes_{};
  const std::unique_ptr<TableShard> table_;
};

using ShardTable = absl::btree_map<ShardKey, std::shared_ptr<Shard>>;

// The shard's name for messages, such as "dense/w, part 2".
std::string ShardText(const ShardSpec& spec);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_SHARD_H_
