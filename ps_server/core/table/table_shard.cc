#include "ps_server/core/table/table_shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace divvy {
namespace {

// A whole table has so many segments; a small part of one has at least so many.
constexpr int64_t kSegmentsOfTable = 256, kLeastSegments = 64;

int64_t BucketsOfSegment(int64_t buckets) {
  return std::max<int64_t>(1, std::min(kTableBuckets / kSegmentsOfTable, buckets / kLeastSegments));
}

// The share of buckets [first, end) in the most rows of a table. The shares of all parts add up to
// `max_rows`.
int64_t ShareOf(int64_t max_rows, int64_t first, int64_t end) {
  if (max_rows == 0) return RowLimit::kNone;
  const auto up_to = [&](int64_t bucket) {
    return static_cast<int64_t>(static_cast<__int128>(max_rows) * bucket / kTableBuckets);
  };
  return up_to(end) - up_to(first);
}

}  // namespace

absl::StatusOr<std::vector<TableKey>> CheckKeys(absl::Span<const int64_t> keys,
                                                int64_t first_bucket, int64_t end_bucket) {
  std::vector<TableKey> checked;
  checked.reserve(keys.size());
  for (const int64_t key : keys) {
    const TableKey next{key, MixKey(key)};
    if (!checked.empty() && TableOrder(next.mixed) <= TableOrder(checked.back().mixed))
      return absl::InvalidArgumentError(absl::StrCat("key ", key, " is not behind key ",
                                                     checked.back().key, " in the table's order"));
    const int64_t bucket = BucketOf(next.mixed);
    if (bucket < first_bucket || bucket >= end_bucket)
      return absl::InvalidArgumentError(absl::StrCat("key ", key, " is in bucket ", bucket,
                                                     ", and this part has buckets ", first_bucket,
                                                     " to ", end_bucket - 1));
    checked.push_back(next);
  }
  return checked;
}

TableShard::TableShard(TableFormat format, int64_t first_bucket, int64_t end_bucket)
    : format_(std::move(format)),
      first_bucket_(first_bucket),
      end_bucket_(end_bucket),
      buckets_of_segment_(BucketsOfSegment(end_bucket - first_bucket)),
      limit_(ShareOf(format_.options.max_rows, first_bucket, end_bucket)) {
  for (int64_t first = first_bucket; first < end_bucket; first += buckets_of_segment_) {
    const int64_t end = std::min(end_bucket, first + buckets_of_segment_);
    segments_.emplace_back(format_, first, end, limit_);
  }
}

std::vector<TableShard::Piece> TableShard::PiecesOf(absl::Span<const TableKey> keys) const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < keys.size(); ++i) {
    const int64_t segment = SegmentOf(keys[i].mixed);
    if (pieces.empty() || pieces.back().segment != segment) pieces.push_back({segment, i, i});
    pieces.back().end = i + 1;
  }
  return pieces;
}

void TableShard::Read(const Piece& piece, absl::Span<const TableKey> keys, float* out) const {
  const Locked& locked = segments_[static_cast<size_t>(piece.segment)];
  MutexLock lock(locked.mutex);
  locked.segment.Read(keys.subspan(piece.begin, piece.end - piece.begin),
                      out + piece.begin * static_cast<size_t>(format_.width));
}

TableCounts TableShard::ApplyGradients(const Piece& piece, absl::Span<const TableKey> keys,
                                       const float* gradients, const OptimizerStep& step,
                                       const TableStamp& stamp) {
  Locked& locked = segments_[static_cast<size_t>(piece.segment)];
  MutexLock lock(locked.mutex);
  return locked.segment.ApplyGradients(keys.subspan(piece.begin, piece.end - piece.begin),
                                       RowAt(gradients, piece.begin), step, stamp);
}

TableCounts TableShard::ApplyValues(const Piece& piece, absl::Span<const TableKey> keys,
                                    const float* values, WriteOp op, const TableStamp& stamp) {
  Locked& locked = segments_[static_cast<size_t>(piece.segment)];
  MutexLock lock(locked.mutex);
  return locked.segment.ApplyValues(keys.subspan(piece.begin, piece.end - piece.begin),
                                    RowAt(values, piece.begin), op, stamp);
}

TableCounts TableShard::Evict(int64_t segment, int64_t first, int64_t end, uint32_t now) {
  Locked& locked = segments_[static_cast<size_t>(segment)];
  MutexLock lock(locked.mutex);
  return locked.segment.Evict(first, end, now);
}

TableShard::Size TableShard::size() const {
  Size size;
  for (const Locked& locked : segments_) {
    MutexLock lock(locked.mutex);
    size.rows += locked.segment.rows();
    size.waiting += locked.segment.waiting();
    size.bytes += locked.segment.bytes();
  }
  return size;
}

}  // namespace divvy
