#include "ps_server/core/frozen_shards.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ps_server/core/table_files.h"

namespace divvy {
namespace {

int64_t BytesOf(const Shard& shard, int64_t block) {
  return (shard.blocks().end_row(block) - shard.blocks().first_row(block)) * shard.row_bytes();
}

// A step touches rows of a few hundred bytes. With larger pages more unchanged bytes would be
// copied.
constexpr int64_t kPageBytes = 4096;

int64_t RowsPerPage(const Shard& shard) {
  return std::max<int64_t>(1, kPageBytes / std::max<int64_t>(1, shard.row_bytes()));
}

int64_t PagesOf(const Shard& shard, int64_t block) {
  const int64_t rows = shard.blocks().end_row(block) - shard.blocks().first_row(block),
                page_rows = RowsPerPage(shard);
  return (rows + page_rows - 1) / page_rows;
}

struct Rows {
  int64_t first, end;
  int64_t bytes(const Shard& shard) const { return (end - first) * shard.row_bytes(); }
};

Rows RowsOfPage(const Shard& shard, int64_t block, size_t page) {
  const int64_t page_rows = RowsPerPage(shard),
                first = shard.blocks().first_row(block) + static_cast<int64_t>(page) * page_rows;
  return {first, std::min(first + page_rows, shard.blocks().end_row(block))};
}

}  // namespace

std::vector<ShardSlice> SlicesOf(const ShardTable& shards, int64_t slice_bytes) {
  std::vector<ShardSlice> slices;
  for (const auto& [key, shard] : shards) {
    const Blocks& blocks = shard->blocks();
    int64_t block = 0;
    do {
      ShardSlice slice{shard, block, block, blocks.count() == 0 ? 0 : blocks.first_row(block), 0};
      int64_t bytes = 0;
      while (
          slice.end_block < blocks.count() &&
          (slice.end_block == block || (shard->table() == nullptr &&
                                        bytes + BytesOf(*shard, slice.end_block) <= slice_bytes))) {
        bytes += BytesOf(*shard, slice.end_block++);
      }
      if (slice.end_block > block)
        slice.rows = blocks.end_row(slice.end_block - 1) - slice.first_row;
      if (TableShard* const table = shard->table(); table != nullptr) {
        table->With(slice.first_block, [&slice, &shard = *shard](const TableSegment& segment) {
          slice.table_bytes = segment.rows() * RowBytesInFile(shard);
        });
      }
      block = slice.end_block;
      slices.push_back(std::move(slice));
    } while (block < blocks.count());
  }
  return slices;
}

int64_t TotalBytes(const std::vector<ShardSlice>& slices) {
  int64_t bytes = 0;
  for (const ShardSlice& slice : slices) bytes += slice.bytes();
  return bytes;
}

FrozenShards::FrozenShards(const ShardTable& shards, int64_t slice_bytes)
    : slices_(SlicesOf(shards, slice_bytes)) {
  for (const auto& [key, shard] : shards) {
    if (TableShard* const table = shard->table(); table != nullptr) {
      FrozenTable& frozen = tables_.emplace_back();
      frozen.shard = shard;
      frozen.filter_bytes = FilterBytesOf(*table->options());
      for (int64_t segment = 0; segment < table->segments(); ++segment) {
        FrozenSegment* const kept =
            frozen.segments.emplace_back(std::make_unique<FrozenSegment>(kept_bytes_)).get();
        table->With(segment, [kept](TableSegment& rows) { rows.Freeze(kept); });
      }
      continue;
    }
    Frozen& frozen = frozen_[shard.get()];
    frozen.shard = shard;
    frozen.blocks.resize(static_cast<size_t>(shard->blocks().count()));
  }
}

// A later checkpoint may have frozen the tables meanwhile.
FrozenShards::~FrozenShards() {
  for (FrozenTable& frozen : tables_) {
    TableShard& table = *frozen.shard->table();
    for (int64_t segment = 0; segment < table.segments(); ++segment) {
      const FrozenSegment* const own = frozen.segments[static_cast<size_t>(segment)].get();
      table.With(segment, [own](TableSegment& rows) {
        if (rows.frozen() == own) rows.Freeze(nullptr);
      });
    }
  }
}

absl::StatusOr<TableImage> FrozenShards::ReadTable(const ShardSlice& slice) {
  TableShard& table = *slice.shard->table();
  const auto frozen = std::find_if(tables_.begin(), tables_.end(), [&](const FrozenTable& each) {
    return each.shard == slice.shard;
  });
  FrozenSegment& own = *frozen->segments[static_cast<size_t>(slice.first_block)];
  TableImage image;
  for (bool is_last = false; !is_last;) {
    std::optional<SegmentRows> rows;
    int64_t in_segment = 0;
    table.With(slice.first_block, [&](TableSegment& segment) {
      in_segment = segment.rows();
      rows = segment.TakeRows(own);
    });
    if (!rows) return absl::AbortedError("a later checkpoint has begun");
    if (rows->is_lost)
      return absl::ResourceExhaustedError(absl::StrCat(
          ShardText(slice.shard->spec()),
          ": no memory for copies of the rows that commits changed while the checkpoint was "
          "written"));
    is_last = rows->is_last;
    if (image.keys.empty()) Reserve(table.format(), static_cast<size_t>(in_segment), image);
    Append(table.format(), *std::move(rows), image);
  }
  image.filter_bytes = frozen->filter_bytes;
  return image;
}

int64_t FrozenShards::MostKept(const Shard& shard, int64_t rows) {
  const int64_t page =
      std::min(RowsPerPage(shard), shard.blocks().rows_per_block()) * shard.row_bytes();
  return page == 0 || rows > shard.size_bytes() / page ? shard.size_bytes() : rows * page;
}

void FrozenShards::BeforeWrite(const Shard& shard, int64_t first, int64_t end) {
  const auto found = frozen_.find(&shard);
  if (found == frozen_.end()) return;  // created after the freeze
  const int64_t index = shard.blocks().BlockOf(first), begin = shard.blocks().first_row(index),
                page_rows = RowsPerPage(shard);
  Block& block = found->second.blocks[static_cast<size_t>(index)];
  if (block.state != Block::State::kLive) return;
  if (block.kept.empty()) block.kept.resize(static_cast<size_t>(PagesOf(shard, index)));
  const size_t last = static_cast<size_t>((end - 1 - begin) / page_rows);
  for (size_t page = static_cast<size_t>((first - begin) / page_rows); page <= last; ++page) {
    if (block.kept[page] == nullptr && !Keep(shard, index, block.kept, page))
      block.state = Block::State::kLost;
  }
}

// False: there is no memory for the copy.
bool FrozenShards::Keep(const Shard& shard, int64_t block, Pages& pages, size_t page) {
  const Rows rows = RowsOfPage(shard, block, page);
  const size_t bytes = static_cast<size_t>(rows.bytes(shard));
  pages[page].reset(new (std::nothrow) char[bytes]);
  if (pages[page] == nullptr) return false;
  if (bytes > 0) std::memcpy(pages[page].get(), shard.row(block, rows.first), bytes);
  kept_bytes_.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  return true;
}

absl::Status FrozenShards::Read(const ShardSlice& slice, const TakePiece& take) {
  Frozen& frozen = frozen_.at(slice.shard.get());
  int64_t largest = 0;
  for (int64_t block = slice.first_block; block < slice.end_block; ++block)
    largest = std::max(largest, BytesOf(*slice.shard, block));
  const std::unique_ptr<char[]> bytes(new (std::nothrow) char[static_cast<size_t>(largest)]);
  if (bytes == nullptr)
    return absl::ResourceExhaustedError(
        absl::StrCat(ShardText(slice.shard->spec()), ": no memory to read ", largest, " bytes"));
  for (int64_t block = slice.first_block; block < slice.end_block; ++block) {
    Pages kept;
    {
      MutexLock lock(slice.shard->blocks().lock(block));
      ASSIGN_OR_RETURN(kept, TakeBlock(frozen, block, bytes.get()));
    }
    Overlay(*slice.shard, block, std::move(kept), bytes.get());
    RETURN_IF_ERROR(
        take(absl::MakeConstSpan(bytes.get(), static_cast<size_t>(BytesOf(*slice.shard, block)))));
  }
  return absl::OkStatus();
}

// Copies the live bytes of pages without a copy to `out`, and returns the copies of the others.
// Overlay puts these in place without the block's lock, so that the lock is held briefly.
absl::StatusOr<FrozenShards::Pages> FrozenShards::TakeBlock(Frozen& frozen, int64_t block,
                                                            char* out) {
  const Shard& shard = *frozen.shard;
  Block& taken = frozen.blocks[static_cast<size_t>(block)];
  if (std::exchange(taken.state, Block::State::kRead) == Block::State::kLost) {
    return absl::ResourceExhaustedError(absl::StrCat(
        ShardText(shard.spec()),
        ": no memory for copies of the rows that commits changed while the checkpoint was "
        "written"));
  }
  Pages kept = std::move(taken.kept);
  const int64_t begin = shard.blocks().first_row(block);
  const auto copy = [&](Rows rows) {
    if (rows.bytes(shard) > 0)
      std::memcpy(out + (rows.first - begin) * shard.row_bytes(), shard.row(block, rows.first),
                  static_cast<size_t>(rows.bytes(shard)));
  };
  if (kept.empty()) copy({begin, shard.blocks().end_row(block)});
  for (size_t page = 0; page < kept.size(); ++page) {
    if (kept[page] == nullptr) copy(RowsOfPage(shard, block, page));
  }
  return kept;
}

void FrozenShards::Overlay(const Shard& shard, int64_t block, Pages kept, char* out) {
  const int64_t begin = shard.blocks().first_row(block);
  for (size_t page = 0; page < kept.size(); ++page) {
    if (kept[page] == nullptr) continue;
    const Rows rows = RowsOfPage(shard, block, page);
    const int64_t bytes = rows.bytes(shard);
    if (bytes > 0)
      std::memcpy(out + (rows.first - begin) * shard.row_bytes(), kept[page].get(),
                  static_cast<size_t>(bytes));
    kept_bytes_.fetch_sub(bytes, std::memory_order_relaxed);
  }
}

}  // namespace divvy
