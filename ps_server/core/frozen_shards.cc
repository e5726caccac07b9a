#include "ps_server/core/frozen_shards.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

int64_t BytesOf(const Shard& shard, int64_t block) { return (shard.blocks().end_row(block) - shard.blocks().first_row(block)) * shard.row_bytes(); }

}  // namespace

std::vector<ShardSlice> SlicesOf(const ShardTable& shards, int64_t slice_bytes) {
  std::vector<ShardSlice> slices;
  for (const auto& [key, shard] : shards) {
    const Blocks& blocks = shard->blocks();
    int64_t block = 0;
    do {
      ShardSlice slice{shard, block, block, blocks.count() == 0 ? 0 : blocks.first_row(block), 0};
      int64_t bytes = 0;
      while (slice.end_block < blocks.count() && (slice.end_block == block || bytes + BytesOf(*shard, slice.end_block) <= slice_bytes)) {
        bytes += BytesOf(*shard, slice.end_block++);
      }
      if (slice.end_block > block) slice.rows = blocks.end_row(slice.end_block - 1) - slice.first_row;
      block = slice.end_block;
      slices.push_back(std::move(slice));
    } while (block < blocks.count());
  }
  return slices;
}

FrozenShards::FrozenShards(const ShardTable& shards, int64_t slice_bytes) : slices_(SlicesOf(shards, slice_bytes)) {
  for (const auto& [key, shard] : shards) {
    Frozen& frozen = frozen_[shard.get()];
    frozen.shard = shard;
    frozen.blocks.resize(static_cast<size_t>(shard->blocks().count()));
    by_blocks_[&shard->blocks()].push_back(&frozen);
  }
}

void FrozenShards::BeforeWrite(const Blocks& blocks, int64_t block) {
  const auto found = by_blocks_.find(&blocks);
  if (found == by_blocks_.end()) return;  // made since
  for (Frozen* frozen : found->second) Keep(*frozen, block);
}

void FrozenShards::Keep(Frozen& frozen, int64_t block) {
  Block& kept = frozen.blocks[static_cast<size_t>(block)];
  if (kept.state != Block::State::kLive) return;
  const int64_t bytes = BytesOf(*frozen.shard, block);
  kept.copy.reset(new (std::nothrow) char[static_cast<size_t>(bytes)]);
  kept.state = kept.copy == nullptr ? Block::State::kLost : Block::State::kKept;
  if (kept.copy == nullptr || bytes == 0) return;
  std::memcpy(kept.copy.get(), frozen.shard->row(frozen.shard->blocks().first_row(block)), static_cast<size_t>(bytes));
  kept_bytes_.fetch_add(bytes, std::memory_order_relaxed);
}

absl::Status FrozenShards::Read(const ShardSlice& slice, const TakePiece& take) {
  Frozen& frozen = frozen_.at(slice.shard.get());
  const Blocks& blocks = slice.shard->blocks();
  int64_t largest = 0;
  for (int64_t block = slice.first_block; block < slice.end_block; ++block) largest = std::max(largest, BytesOf(*slice.shard, block));
  const std::unique_ptr<char[]> live(new (std::nothrow) char[static_cast<size_t>(largest)]);
  if (live == nullptr) return absl::ResourceExhaustedError(absl::StrCat(ShardText(slice.shard->spec()), ": no memory to read ", largest, " bytes"));
  for (int64_t block = slice.first_block; block < slice.end_block; ++block) {
    std::unique_ptr<char[]> kept;
    {
      MutexLock lock(blocks.lock(block));
      ASSIGN_OR_RETURN(kept, TakeBlock(frozen, block, live.get()));
    }
    RETURN_IF_ERROR(take(absl::MakeConstSpan(kept == nullptr ? live.get() : kept.get(), static_cast<size_t>(BytesOf(*slice.shard, block)))));
  }
  return absl::OkStatus();
}

// The copy that was kept, or null: the block is copied to `live`.
absl::StatusOr<std::unique_ptr<char[]>> FrozenShards::TakeBlock(Frozen& frozen, int64_t block, char* live) {
  Block& kept = frozen.blocks[static_cast<size_t>(block)];
  const int64_t bytes = BytesOf(*frozen.shard, block);
  switch (std::exchange(kept.state, Block::State::kRead)) {
    case Block::State::kLost:
      return absl::ResourceExhaustedError(
          absl::StrCat(ShardText(frozen.shard->spec()), ": no memory for ", bytes, " bytes that a commit changed while the checkpoint was written"));
    case Block::State::kKept: kept_bytes_.fetch_sub(bytes, std::memory_order_relaxed); return std::move(kept.copy);
    default: break;
  }
  if (bytes > 0) std::memcpy(live, frozen.shard->row(frozen.shard->blocks().first_row(block)), static_cast<size_t>(bytes));
  return std::unique_ptr<char[]>();
}

}  // namespace divvy
