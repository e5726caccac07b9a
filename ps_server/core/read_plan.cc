#include "ps_server/core/read_plan.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/status_macros.h"
#include "kernels/bfloat16.h"
#include "protocol/error.h"
#include "variables/table_parts.h"
#include "variables/transfer_dtype.h"

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
  if (part.as_bfloat16 && TransferDType(shard.spec()) != DType::kFloat32)
    return invalid("only float32 is rounded to bfloat16");
  if (part.want != PullWant::kValues && shard.table() == nullptr)
    return invalid("only a dynamic table has records and statistics");
  if (part.want == PullWant::kStats)
    return part.rows ? invalid("statistics are of the whole part, and not of rows")
                     : absl::OkStatus();
  const bool rounds = part.as_bfloat16 &&
                      (part.want != PullWant::kValues || shard.spec().dtype != DType::kBFloat16);
  if (shard.table() != nullptr && (!part.rows || rounds))
    return invalid("a table is read by its keys, exactly");
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
  if (part.want != PullWant::kValues) return DType::kInt64;
  return part.as_bfloat16 ? DType::kBFloat16 : TransferDType(shard.spec());
}
Shape ReplyShape(const PullPart& part, const Shard& shard) {
  if (part.want == PullWant::kStats) return {1, kTableStatsWidth};
  if (part.want == PullWant::kRecords) return {part.rows->shape().dim(0), kTableRecordWidth};
  const Shape& shape = shard.spec().shape;
  return part.rows ? shape.WithRows(part.rows->shape().dim(0)) : shape;
}
int64_t RowBytesOf(const PullPart& part, const Shard& shard) {
  const int64_t elements = part.want == PullWant::kValues    ? shard.row_elements()
                           : part.want == PullWant::kRecords ? kTableRecordWidth
                                                             : kTableStatsWidth;
  return elements * DTypeSize(ReplyDType(part, shard));
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
  int64_t more = (part.want == PullWant::kStats ? 1 : shard.blocks().rows()) * row_bytes;
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
  // Most pulls name each shard once, in rising order.
  std::vector<std::pair<ShardKey, const Shard*>> whole, named;
  whole.reserve(parts.size());
  named.reserve(parts.size());
  for (const PullPart& part : parts) {
    ASSIGN_OR_RETURN(const Shard* const shard, Find(part.shard, shards));
    RETURN_IF_ERROR(CheckPart(part, *shard));
    if (!part.rows) whole.emplace_back(part.shard, shard);
    RETURN_IF_ERROR(AddBytes(part, *shard, bytes));
    named.emplace_back(part.shard, shard);
  }
  // A shard may be named whole only once. If it could be named repeatedly, a request of a few bytes
  // could ask for any amount of memory.
  std::sort(whole.begin(), whole.end());
  if (const auto twice = std::adjacent_find(whole.begin(), whole.end()); twice != whole.end())
    return Invalid(*twice->second, "it is named whole twice; name it once");
  std::sort(named.begin(), named.end());
  named.erase(std::unique(named.begin(), named.end()), named.end());
  for (const auto& [key, shard] : named) there_are += shard->size_bytes();
  // A table gives each key once, however many parts name it.
  std::set<std::pair<ShardKey, PullWant>> counted;
  for (const PullPart& part : parts) {
    const Shard& shard = *shards.at(part.shard);
    if (shard.table() != nullptr && counted.emplace(part.shard, part.want).second)
      RETURN_IF_ERROR(AddBytes(part, shard, there_are));
  }
  if (most_bytes == 0 || bytes <= std::max(most_bytes, there_are)) return bytes;
  return MakeError(Reason::kInvalid,
                   absl::StrCat("a read of ", bytes, " bytes from shards that have ", there_are,
                                " bytes: if rows are named repeatedly, the limit is ", most_bytes,
                                " bytes. Name each row once, or raise --pull_buffer_bytes"));
}

absl::StatusOr<ReadPlan> ReadPlan::Make(std::vector<PullPart> parts, const ShardTable& shards,
                                        int64_t most_bytes, int64_t unit_bytes, PullTarget* target,
                                        int64_t least_lent) {
  RETURN_IF_ERROR(Bytes(parts, shards, most_bytes).status());
  ReadPlan plan(unit_bytes);
  plan.parts_.reserve(parts.size());
  plan.pieces_.reserve(parts.size());
  for (PullPart& part : parts) {
    const std::shared_ptr<Shard>& shard = shards.at(part.shard);
    RETURN_IF_ERROR(plan.AddPart(std::move(part), shard, target, least_lent));
  }
  return plan;
}

absl::Status ReadPlan::AddPart(PullPart asked, std::shared_ptr<Shard> shard, PullTarget* target,
                               int64_t least_lent) {
  Part part;
  part.shard = std::move(shard);
  if (const TableShard* const table = part.shard->table(); table != nullptr && asked.rows) {
    auto keys = CheckKeys(RowsOf(asked), table->first_bucket(), table->end_bucket());
    if (!keys.ok()) return Invalid(*part.shard, keys.status().message());
    part.keys = *std::move(keys);
  } else if (asked.rows) {
    RETURN_IF_ERROR(CheckRange(RowsOf(asked), *part.shard));
  }
  const ShardSpec& spec = part.shard->spec();
  if (part.shard->table() != nullptr) {  // the numbers of a table are no rows
    const int64_t first = part.shard->table()->first_bucket();
    part.shard->CountUse(part.keys.size(),
                         [&](size_t i) { return BucketOf(part.keys[i].mixed) - first; });
  } else if (asked.rows) {
    const absl::Span<const int64_t> rows = RowsOf(asked);
    part.shard->CountUse(rows.size(), [rows](size_t i) { return rows[i]; });
  } else {
    part.shard->CountUse();
  }
  const DType dtype = ReplyDType(asked, *part.shard);
  Shape shape = ReplyShape(asked, *part.shard);
  const bool lends = asked.may_lend && target == nullptr && !asked.rows && !asked.as_bfloat16 &&
                     asked.want == PullWant::kValues;
  if (lends && part.shard->lends() && part.shard->size_bytes() >= least_lent) {
    part.lent = std::make_shared<ScatteredTensor>(dtype, spec.shape);
    part.asked = std::move(asked);
    parts_.push_back(std::move(part));
    pieces_.push_back({parts_.size() - 1});
    units_.AddPiece(0);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(part.values, target != nullptr ? target->Next(dtype, std::move(shape))
                                                  : Tensor::Uninitialized(dtype, std::move(shape)));
  part.to = part.values.fresh_data<char>();
  if (asked.rows && part.keys.empty())
    part.order = part.shard->blocks().OrderByBlock(RowsOf(asked));
  part.asked = std::move(asked);
  parts_.push_back(std::move(part));
  CutIntoBlocks(parts_.size() - 1);
  return absl::OkStatus();
}

void ReadPlan::CutIntoBlocks(size_t index) {
  const Part& part = parts_[index];
  const Blocks& blocks = part.shard->blocks();
  const int64_t row_bytes = RowBytesOf(part.asked, *part.shard);
  if (part.asked.want == PullWant::kStats) {
    pieces_.push_back({index});
    units_.AddPiece(row_bytes);
    return;
  }
  if (!part.asked.rows) {
    for (int64_t block = 0; block < blocks.count(); ++block) {
      pieces_.push_back({index, block});
      units_.AddPiece((blocks.end_row(block) - blocks.first_row(block)) * row_bytes);
    }
    return;
  }
  const absl::Span<const int64_t> rows = RowsOf(part.asked);
  const bool has_keys = !part.keys.empty();
  blocks.ForEachBlock(
      rows.size(),
      [&](size_t i) {
        return has_keys ? BucketOf(part.keys[i].mixed) - part.shard->spec().first_row
                        : rows[part.order[i]];
      },
      [&](int64_t block, size_t begin, size_t end) {
        pieces_.push_back({index, block, begin, end});
        units_.AddPiece(static_cast<int64_t>(end - begin) * row_bytes);
      });
}

void ReadPlan::Read(int64_t unit) {
  const auto [begin, end] = units_.pieces(unit);
  for (size_t i = begin; i < end; ++i) ReadBlock(parts_[pieces_[i].part], pieces_[i]);
}

void ReadPlan::ReadKeys(const Part& part, const Piece& piece, TableSegment& segment) {
  const auto keys = absl::MakeConstSpan(part.keys).subspan(piece.begin, piece.end - piece.begin);
  if (!RuleHolds(Rule::kPullsMakeNoRows)) segment.Touch(keys, {});
  char* const to =
      part.to + static_cast<int64_t>(piece.begin) * RowBytesOf(part.asked, *part.shard);
  if (part.asked.want == PullWant::kRecords)
    return segment.ReadRecords(keys, reinterpret_cast<int64_t*>(to));
  if (!part.asked.as_bfloat16) return segment.Read(keys, reinterpret_cast<float*>(to));
  std::vector<float> floats(keys.size() * static_cast<size_t>(part.shard->row_elements()));
  segment.Read(keys, floats.data());
  ToBFloat16(floats.data(), static_cast<int64_t>(floats.size()),
             reinterpret_cast<BFloat16Bits*>(to));
}

void ReadPlan::ReadBlock(const Part& part, const Piece& piece) {
  const Shard& shard = *part.shard;
  const int64_t block = piece.block;
  const Blocks& blocks = shard.blocks();
  const int64_t row_bytes = RowBytesOf(part.asked, shard);
  if (row_bytes == 0) return;
  if (part.lent != nullptr) {
    for (int64_t next = 0; next < blocks.count(); ++next) {
      MutexLock lock(blocks.lock(next));
      Shard::Lend(part.shard, next, *part.lent);
    }
    return;
  }
  if (part.asked.want == PullWant::kStats) {
    const TablePartStats stats = shard.table()->stats();
    return WriteStats(stats, reinterpret_cast<int64_t*>(part.to));
  }
  if (shard.table() != nullptr) {
    shard.table()->With(block, [&](TableSegment& segment) { ReadKeys(part, piece, segment); });
    return;
  }
  MutexLock lock(blocks.lock(block));
  if (!part.asked.rows) {
    const int64_t first = blocks.first_row(block);
    return CopyRows(part.asked, shard, shard.row(block, first), blocks.end_row(block) - first,
                    part.to + first * row_bytes);
  }
  const absl::Span<const int64_t> rows = RowsOf(part.asked);
  for (size_t i = piece.begin; i < piece.end; ++i) {
    // The rows of a large table are in no cache.
    constexpr size_t kAhead = 8;
    if (i + kAhead < piece.end)
      Prefetch(shard.row(block, rows[part.order[i + kAhead]]),
               static_cast<size_t>(shard.row_bytes()));
    const int64_t position = part.order[i];
    CopyRows(part.asked, shard, shard.row(block, rows[position]), 1,
             part.to + position * row_bytes);
  }
}

}  // namespace divvy
