#include "ps_server/core/read_plan.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/bfloat16.h"
#include "protocol/error.h"

namespace divvy {
namespace {

absl::Span<const int64_t> RowsOf(const PullPart& part) {
  return absl::MakeConstSpan(part.rows->data_as<int64_t>(),
                             static_cast<size_t>(part.rows->shape().num_elements()));
}

absl::Status Invalid(const Shard& shard, absl::string_view why) {
  return MakeError(Reason::kInvalid, absl::StrCat("read of ", ShardText(shard.spec()), ": ", why));
}

absl::Status CheckPart(const PullPart& part, const Shard& shard) {
  const auto invalid = [&](absl::string_view why) { return Invalid(shard, why); };
  if (part.as_bfloat16 && shard.spec().dtype != DType::kFloat32)
    return invalid("only float32 is rounded to bfloat16");
  if (!part.rows) return absl::OkStatus();
  if (shard.spec().shape.rank() == 0) return invalid("a scalar has no rows");
  if (part.rows->dtype() != DType::kInt64 || part.rows->shape().rank() != 1 ||
      part.rows->device().kind != Device::Kind::kCpu) {
    return invalid(absl::StrCat("rows are ", part.rows->ToString(), ", and not int64 [n]"));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(absl::Span<const int64_t> rows, const Shard& shard) {
  const int64_t end = shard.blocks().rows();
  for (int64_t row : rows) {
    if (row < 0 || row >= end)
      return Invalid(shard, absl::StrCat("row ", row, " is outside its ", end, " rows"));
  }
  return absl::OkStatus();
}

// Begins to load the first cache lines of a row.
void Prefetch(const char* row, size_t bytes) {
  constexpr size_t kLine = 64, kMostBytes = 4 * kLine;
  for (size_t at = 0; at < std::min(bytes, kMostBytes); at += kLine) __builtin_prefetch(row + at);
}

DType ReplyDType(const PullPart& part, const Shard& shard) {
  return part.as_bfloat16 ? DType::kBFloat16 : shard.spec().dtype;
}
int64_t RowBytesOf(const PullPart& part, const Shard& shard) {
  return shard.row_elements() * DTypeSize(ReplyDType(part, shard));
}

// Copies `rows` rows, which lie one behind another.
void CopyRows(const PullPart& part, const Shard& shard, const char* from, int64_t rows, char* to) {
  if (!part.as_bfloat16)
    std::memcpy(to, from, static_cast<size_t>(rows * shard.row_bytes()));
  else
    ToBFloat16(reinterpret_cast<const float*>(from), rows * shard.row_elements(),
               reinterpret_cast<BFloat16Bits*>(to));
}

absl::StatusOr<const Shard*> Find(ShardKey key, const ShardTable& shards) {
  const auto found = shards.find(key);
  if (found != shards.end()) return found->second.get();
  return MakeError(Reason::kUnknownShard,
                   absl::StrCat("no shard ", key.variable.value(), "/slot ", key.slot, "/part ",
                                key.part, " on this parameter server"));
}

absl::Status AddBytes(const PullPart& part, const Shard& shard, int64_t& bytes) {
  const int64_t row_bytes = RowBytesOf(part, shard);
  int64_t more = shard.blocks().rows() * row_bytes;
  bool overflows =
      part.rows && __builtin_mul_overflow(part.rows->shape().num_elements(), row_bytes, &more);
  overflows = overflows || __builtin_add_overflow(bytes, more, &bytes);
  return overflows ? Invalid(shard, "more bytes are asked for than can be counted")
                   : absl::OkStatus();
}

}  // namespace

absl::StatusOr<int64_t> ReadPlan::Bytes(absl::Span<const PullPart> parts, const ShardTable& shards,
                                        int64_t most_bytes) {
  int64_t bytes = 0, there_are = 0;
  std::set<ShardKey> whole, named;
  for (const PullPart& part : parts) {
    ASSIGN_OR_RETURN(const Shard* const shard, Find(part.shard, shards));
    RETURN_IF_ERROR(CheckPart(part, *shard));
    // A shard may be named whole only once. If it could be named repeatedly, a request of a few
    // bytes could ask for any amount of memory.
    if (!part.rows && !whole.insert(part.shard).second)
      return Invalid(*shard, "it is named whole twice; name it once");
    RETURN_IF_ERROR(AddBytes(part, *shard, bytes));
    if (named.insert(part.shard).second) there_are += shard->size_bytes();
  }
  if (most_bytes == 0 || bytes <= std::max(most_bytes, there_are)) return bytes;
  return MakeError(Reason::kInvalid,
                   absl::StrCat("a read of ", bytes, " bytes from shards that have ", there_are,
                                " bytes: if rows are named repeatedly, the limit is ", most_bytes,
                                " bytes. Name each row once, or raise --pull_buffer_bytes"));
}

absl::StatusOr<ReadPlan> ReadPlan::Make(std::vector<PullPart> parts, const ShardTable& shards,
                                        int64_t most_bytes, int64_t unit_bytes,
                                        PullTarget* target) {
  RETURN_IF_ERROR(Bytes(parts, shards, most_bytes).status());
  ReadPlan plan(unit_bytes);
  for (PullPart& part : parts) {
    const std::shared_ptr<Shard>& shard = shards.at(part.shard);
    RETURN_IF_ERROR(plan.AddPart(std::move(part), shard, target));
  }
  return plan;
}

absl::Status ReadPlan::AddPart(PullPart asked, std::shared_ptr<Shard> shard, PullTarget* target) {
  Part part;
  part.shard = std::move(shard);
  if (asked.rows) RETURN_IF_ERROR(CheckRange(RowsOf(asked), *part.shard));
  const ShardSpec& spec = part.shard->spec();
  const DType dtype = ReplyDType(asked, *part.shard);
  Shape shape = asked.rows ? spec.shape.WithRows(asked.rows->shape().dim(0)) : spec.shape;
  ASSIGN_OR_RETURN(part.values, target != nullptr ? target->Next(dtype, std::move(shape))
                                                  : Tensor::Uninitialized(dtype, std::move(shape)));
  part.to = part.values.fresh_data<char>();
  if (asked.rows) part.order = part.shard->blocks().OrderByBlock(RowsOf(asked));
  part.asked = std::move(asked);
  parts_.push_back(std::move(part));
  CutIntoBlocks(parts_.size() - 1);
  return absl::OkStatus();
}

void ReadPlan::CutIntoBlocks(size_t index) {
  const Part& part = parts_[index];
  const Blocks& blocks = part.shard->blocks();
  const int64_t row_bytes = part.shard->row_bytes();
  if (!part.asked.rows) {
    for (int64_t block = 0; block < blocks.count(); ++block) {
      pieces_.push_back({index, block});
      units_.AddPiece((blocks.end_row(block) - blocks.first_row(block)) * row_bytes);
    }
    return;
  }
  const absl::Span<const int64_t> rows = RowsOf(part.asked);
  blocks.ForEachBlock(
      rows.size(), [&](size_t i) { return rows[part.order[i]]; },
      [&](int64_t block, size_t begin, size_t end) {
        pieces_.push_back({index, block, begin, end});
        units_.AddPiece(static_cast<int64_t>(end - begin) * row_bytes);
      });
}

void ReadPlan::Read(int64_t unit) {
  const auto [begin, end] = units_.pieces(unit);
  for (size_t i = begin; i < end; ++i) ReadBlock(parts_[pieces_[i].part], pieces_[i]);
}

void ReadPlan::ReadBlock(const Part& part, const Piece& piece) {
  const Shard& shard = *part.shard;
  const int64_t block = piece.block;
  const Blocks& blocks = shard.blocks();
  const int64_t row_bytes = RowBytesOf(part.asked, shard);
  if (row_bytes == 0) return;
  MutexLock lock(blocks.lock(block));
  if (!part.asked.rows) {
    const int64_t first = blocks.first_row(block);
    return CopyRows(part.asked, shard, shard.row(first), blocks.end_row(block) - first,
                    part.to + first * row_bytes);
  }
  const absl::Span<const int64_t> rows = RowsOf(part.asked);
  for (size_t i = piece.begin; i < piece.end; ++i) {
    // The rows of a large table are in no cache.
    constexpr size_t kAhead = 8;
    if (i + kAhead < piece.end)
      Prefetch(shard.row(rows[part.order[i + kAhead]]), static_cast<size_t>(shard.row_bytes()));
    const int64_t position = part.order[i];
    CopyRows(part.asked, shard, shard.row(rows[position]), 1, part.to + position * row_bytes);
  }
}

}  // namespace divvy
