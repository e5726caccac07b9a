#include "ps_server/core/table/table_shard.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "variables/table_parts.h"

namespace divvy {
namespace {

// A whole table has so many segments; a small part of one has at least so many.
constexpr int64_t kSegmentsOfTable = 256, kLeastSegments = 64;

int64_t BucketsOfSegment(int64_t buckets) {
  return std::max<int64_t>(1, std::min(kTableBuckets / kSegmentsOfTable, buckets / kLeastSegments));
}

int64_t MostRows(const TableOptions& options, int64_t first, int64_t end) {
  return options.max_rows == 0 ? RowLimit::kNone : ShareOfRows(options.max_rows, first, end);
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

TableShard::TableShard(TableFormat format, int64_t first_bucket, int64_t end_bucket,
                       std::shared_ptr<TableMemory> memory)
    : format_(std::move(format)),
      first_bucket_(first_bucket),
      end_bucket_(end_bucket),
      buckets_of_segment_(BucketsOfSegment(end_bucket - first_bucket)),
      limit_(MostRows(format_.options, first_bucket, end_bucket), std::move(memory)),
      options_(std::make_shared<const TableOptions>(format_.options)) {
  for (int64_t first = first_bucket; first < end_bucket; first += buckets_of_segment_) {
    const int64_t end = std::min(end_bucket, first + buckets_of_segment_);
    segments_.emplace_back(format_, first, end, limit_);
  }
  for (int64_t segment = 0; segment < segments(); ++segment) With(segment, [](TableSegment&) {});
}

std::shared_ptr<const TableOptions> TableShard::options() const {
  MutexLock lock(options_mu_);
  return options_;
}

void TableShard::ChangeOptions(TableOptions options) {
  limit_.SetMost(MostRows(options, first_bucket_, end_bucket_));
  totals_.refused.store(0, std::memory_order_relaxed);
  log_at_.store(1, std::memory_order_relaxed);
  auto next = std::make_shared<const TableOptions>(std::move(options));
  MutexLock lock(options_mu_);
  options_ = std::move(next);
}

void TableShard::ChangeSegment(int64_t segment) {
  With(segment, [options = options()](TableSegment& locked) { locked.SetOptions(options); });
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

void TableShard::Note(const TableCounts& counts) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  totals_.admitted.fetch_add(counts.made, kRelaxed);
  totals_.evicted.fetch_add(counts.evicted, kRelaxed);
  if (counts.refused == 0) return;
  const int64_t refused = totals_.refused.fetch_add(counts.refused, kRelaxed) + counts.refused;
  int64_t log_at = log_at_.load(kRelaxed), next = log_at;
  while (next <= refused) next *= 10;
  // Another thread that has changed log_at_ meanwhile also logs.
  if (next == log_at || !log_at_.compare_exchange_strong(log_at, next, kRelaxed)) return;
  DIVVY_LOG(WARNING) << "dynamic table \"" << format_.context.name << "\" is full: keys found no "
                     << "room " << refused << " times in buckets " << first_bucket_ << " to "
                     << end_bucket_ - 1
                     << ". Raise its max_rows or --memory_limit_bytes, or give it an eviction rule";
}

void TableShard::Locked::AddTo(Totals& totals) {
  const auto update = [](int64_t now, int64_t& told, std::atomic<int64_t>& total) {
    if (now == told) return;
    total.fetch_add(now - told, std::memory_order_relaxed);
    told = now;
  };
  update(segment.rows(), rows, totals.rows);
  update(segment.waiting(), waiting, totals.waiting);
  update(segment.bytes(), bytes, totals.bytes);
}

TablePartStats TableShard::stats() const {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  return {totals_.rows.load(kRelaxed),    totals_.waiting.load(kRelaxed),
          totals_.bytes.load(kRelaxed),   totals_.admitted.load(kRelaxed),
          totals_.refused.load(kRelaxed), totals_.evicted.load(kRelaxed)};
}

}  // namespace divvy
