// The values of all shards at one moment, kept readable while commits continue.
#ifndef DIVVY_PS_SERVER_CORE_FROZEN_SHARDS_H_
#define DIVVY_PS_SERVER_CORE_FROZEN_SHARDS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "ps_server/core/checkpoint_files.h"
#include "ps_server/core/shard.h"
#include "ps_server/core/table/frozen_segment.h"
#include "ps_server/core/table/table_image.h"

namespace divvy {

// A run of whole blocks of one shard, which is read and written to a file at a time. Of a table,
// one segment.
struct ShardSlice {
  std::shared_ptr<const Shard> shard;
  int64_t first_block = 0, end_block = 0;
  int64_t first_row = 0, rows = 0;  // of the shard
  // Of a table: the bytes of its rows in a file, as many as there were when the slices were made.
  int64_t table_bytes = 0;
  int64_t bytes() const {
    return shard->table() == nullptr ? rows * shard->row_bytes() : table_bytes;
  }
};

// All rows of all shards, in the order of the shards' keys, in slices of up to `slice_bytes` (at
// least one block). A shard without rows has one empty slice.
std::vector<ShardSlice> SlicesOf(const ShardTable& shards, int64_t slice_bytes);

// The sum over the slices.
int64_t TotalBytes(const std::vector<ShardSlice>& slices);

// Copy-on-write by pages; a page is a run of rows within a block. Construction copies nothing. A
// writer calls BeforeWrite before it changes rows, which copies their pages if they have not been
// read yet. Read returns the copies, or the live bytes if there is no copy, and frees the copies.
// So the extra memory holds only pages that were changed and not yet read, and a step that touches
// a few scattered rows copies little (bench:checkpoint).
//
// A segment of a table keeps its own rows, so writers do not call BeforeWrite for it.
//
// Thread-safe: a block's state is guarded by the block's own lock.
class FrozenShards {
 public:
  // Freezes the shards as they are now. REQUIRES: nothing writes to the shards before the
  // constructor returns; every later writer calls BeforeWrite.
  FrozenShards(const ShardTable& shards, int64_t slice_bytes);
  ~FrozenShards();

  // Keeps the values of rows [first, end), which all lie in one block. Does not fail: if there is
  // no memory for the copy, Read returns the error. REQUIRES: the caller holds the block's lock;
  // first < end.
  void BeforeWrite(const Shard& shard, int64_t first, int64_t end);

  // Upper bound of the bytes that are kept for `rows` rows of a shard, wherever they lie.
  static int64_t MostKept(const Shard& shard, int64_t rows);

  // SlicesOf the shards.
  const std::vector<ShardSlice>& slices() const { return slices_; }
  // Passes the slice, as it was at that moment, to `take`, block by block. ResourceExhausted: there
  // was no memory to keep changed rows, or there is none to read a block. Otherwise the first error
  // of `take`. REQUIRES: each slice is read once; its shard has no table.
  absl::Status Read(const ShardSlice& slice, const TakePiece& take);
  // The segment as it was at that moment. ResourceExhausted as above. Aborted: the shards have been
  // frozen again meanwhile. REQUIRES: each slice is read once; its shard has a table.
  absl::StatusOr<TableImage> ReadTable(const ShardSlice& slice);

  int64_t kept_bytes() const { return kept_bytes_.load(std::memory_order_relaxed); }

 private:
  using Pages = std::vector<std::unique_ptr<char[]>>;
  struct Block {
    enum class State : uint8_t { kLive, kLost, kRead } state = State::kLive;
    // Copies by page; null if the live page is valid. Empty: all live pages are valid.
    Pages kept;
  };
  struct Frozen {
    std::shared_ptr<const Shard> shard;
    std::vector<Block> blocks;
  };
  bool Keep(const Shard& shard, int64_t block, Pages& pages, size_t page);
  absl::StatusOr<Pages> TakeBlock(Frozen& frozen, int64_t block, char* out);
  void Overlay(const Shard& shard, int64_t block, Pages kept, char* out);

  // The map itself never changes after the constructor.
  std::unordered_map<const Shard*, Frozen> frozen_;
  const std::vector<ShardSlice> slices_;
  std::atomic<int64_t> kept_bytes_{0};
  struct FrozenTable {
    std::shared_ptr<const Shard> shard;
    // FilterBytesOf its options.
    int64_t filter_bytes = 0;
    std::vector<std::unique_ptr<FrozenSegment>> segments;
  };
  std::vector<FrozenTable> tables_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_FROZEN_SHARDS_H_
