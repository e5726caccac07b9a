// The values of all shards at one moment, kept readable while commits go on.
#ifndef DIVVY_PS_SERVER_CORE_FROZEN_SHARDS_H_
#define DIVVY_PS_SERVER_CORE_FROZEN_SHARDS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "ps_server/core/checkpoint_files.h"
#include "ps_server/core/shard.h"

namespace divvy {

// A run of whole blocks of one shard: what is read from it, and written to a file, at a time.
struct ShardSlice {
  std::shared_ptr<const Shard> shard;
  int64_t first_block = 0, end_block = 0;
  int64_t first_row = 0, rows = 0;  // of the shard
  int64_t bytes() const { return rows * shard->row_bytes(); }
};

// All rows of all shards, in the order of their keys, in slices of up to `slice_bytes` (at least one block). A shard without rows has one, too.
std::vector<ShardSlice> SlicesOf(const ShardTable& shards, int64_t slice_bytes);

// Copy-on-write by blocks: nothing is copied when it is made; who is about to change a block calls BeforeWrite, which keeps a copy of what has not been read
// yet; Read takes the copy, or the live bytes where there is none, and forgets it. So the memory beyond the shards' own is what was changed and not yet read.
//
// Thread-safe: a block's state is guarded by the block's own lock.
class FrozenShards {
 public:
  // The moment is now. REQUIRES: nothing writes to the shards before this returns; every later writer calls BeforeWrite.
  FrozenShards(const ShardTable& shards, int64_t slice_bytes);

  // Keeps what `block` of a variable and of all its slots holds. Does not fail: where there is no memory for the copy, Read will say so.
  // REQUIRES: the caller holds blocks.lock(block).
  void BeforeWrite(const Blocks& blocks, int64_t block);

  // SlicesOf the shards.
  const std::vector<ShardSlice>& slices() const { return slices_; }
  // Gives the slice as it was at that moment, block by block. ResourceExhausted: a block was changed, and there was no memory to keep what it held; or there is
  // none to read a block. Else the first error of `take`. REQUIRES: each slice is read once.
  absl::Status Read(const ShardSlice& slice, const TakePiece& take);

  int64_t kept_bytes() const { return kept_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Block {
    enum class State : uint8_t { kLive, kKept, kLost, kRead } state = State::kLive;
    std::unique_ptr<char[]> copy;  // kKept
  };
  struct Frozen {
    std::shared_ptr<const Shard> shard;
    std::vector<Block> blocks;
  };
  void Keep(Frozen& frozen, int64_t block);
  absl::StatusOr<std::unique_ptr<char[]>> TakeBlock(Frozen& frozen, int64_t block, char* live);

  std::map<const Shard*, Frozen> frozen_;                    // the map itself never changes after the constructor, nor does the next one
  std::map<const Blocks*, std::vector<Frozen*>> by_blocks_;  // a variable and its slots
  const std::vector<ShardSlice> slices_;
  std::atomic<int64_t> kept_bytes_{0};
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_FROZEN_SHARDS_H_
