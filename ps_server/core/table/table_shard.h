// One part of a dynamic table.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_TABLE_SHARD_H_
#define DIVVY_PS_SERVER_CORE_TABLE_TABLE_SHARD_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "ps_server/core/table/table_segment.h"

namespace divvy {

// The keys of a request in the order of TableOrder, so by bucket, and unique. InvalidArgument,
// naming the key: they are not, or one lies outside buckets [first_bucket, end_bucket).
absl::StatusOr<std::vector<TableKey>> CheckKeys(absl::Span<const int64_t> keys,
                                                int64_t first_bucket, int64_t end_bucket);

// The rows of buckets [first_bucket, end_bucket), in segments of neighbouring buckets, each with a
// lock. So two requests meet only where they touch the same segment. A segment is also the most
// that one lock is held for: growing its index, or evicting from it. Thread-safe.
class TableShard {
 public:
  // REQUIRES: 0 <= first_bucket < end_bucket <= kTableBuckets.
  TableShard(TableFormat format, int64_t first_bucket, int64_t end_bucket);
  TableShard(const TableShard&) = delete;
  TableShard& operator=(const TableShard&) = delete;

  const TableFormat& format() const { return format_; }
  int64_t first_bucket() const { return first_bucket_; }
  int64_t end_bucket() const { return end_bucket_; }
  int64_t segments() const { return static_cast<int64_t>(segments_.size()); }

  // What a request does to one segment: keys [begin, end) of the request.
  struct Piece {
    int64_t segment = 0;
    size_t begin = 0, end = 0;
  };
  // REQUIRES: `keys` are from CheckKeys with the buckets of this shard.
  std::vector<Piece> PiecesOf(absl::Span<const TableKey> keys) const;

  // As the functions of TableSegment, with the piece's part of `keys` and of the values, which are
  // one row for each key. Blocks only while another thread is in the segment.
  void Read(const Piece& piece, absl::Span<const TableKey> keys, float* out) const;
  TableCounts ApplyGradients(const Piece& piece, absl::Span<const TableKey> keys,
                             const float* gradients, const OptimizerStep& step,
                             const TableStamp& stamp);
  TableCounts ApplyValues(const Piece& piece, absl::Span<const TableKey> keys, const float* values,
                          WriteOp op, const TableStamp& stamp);
  // Evicts from the part of a segment that lies in buckets [first, end).
  TableCounts Evict(int64_t segment, int64_t first, int64_t end, uint32_t now);

  // Sums over all segments, which may be of different moments while requests run.
  struct Size {
    int64_t rows = 0, waiting = 0, bytes = 0;
  };
  Size size() const;

  // Calls use(segment) under the segment's lock.
  template <typename Use>
  void With(int64_t segment, const Use& use) {
    Locked& locked = segments_[static_cast<size_t>(segment)];
    MutexLock lock(locked.mutex);
    use(locked.segment);
  }

 private:
  struct Locked {
    Locked(const TableFormat& format, int64_t first, int64_t end, RowLimit& limit)
        : segment(format, first, end, limit) {}
    mutable Mutex mutex;
    TableSegment segment DIVVY_GUARDED_BY(mutex);
  };
  int64_t SegmentOf(uint64_t mixed) const {
    return (BucketOf(mixed) - first_bucket_) / buckets_of_segment_;
  }
  const float* RowAt(const float* values, size_t i) const {
    return values + i * static_cast<size_t>(format_.width);
  }

  const TableFormat format_;
  const int64_t first_bucket_, end_bucket_, buckets_of_segment_;
  RowLimit limit_;
  std::deque<Locked> segments_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_TABLE_SHARD_H_
