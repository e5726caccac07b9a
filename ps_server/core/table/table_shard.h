// One part of a dynamic table.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_TABLE_SHARD_H_
#define DIVVY_PS_SERVER_CORE_TABLE_TABLE_SHARD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "ps_server/core/table/table_segment.h"
#include "variables/table_stats.h"

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
  // `memory` limits it together with other tables.
  TableShard(TableFormat format, int64_t first_bucket, int64_t end_bucket,
             std::shared_ptr<TableMemory> memory = std::make_shared<TableMemory>());
  TableShard(const TableShard&) = delete;
  TableShard& operator=(const TableShard&) = delete;

  // Immutable; options() may be others than those of the format.
  const TableFormat& format() const { return format_; }
  int64_t first_bucket() const { return first_bucket_; }
  int64_t end_bucket() const { return end_bucket_; }
  int64_t segments() const { return static_cast<int64_t>(segments_.size()); }
  int64_t buckets_of_segment() const { return buckets_of_segment_; }

  // The options in effect, never null.
  std::shared_ptr<const TableOptions> options() const;
  // Begins to go on with other options, and to count refused keys from 0. The caller then calls
  // ChangeSegment for each segment.
  void ChangeOptions(TableOptions options);
  // Gives the segment the options in effect. Blocks as With.
  void ChangeSegment(int64_t segment);

  // What a request does to one segment: keys [begin, end) of the request.
  struct Piece {
    int64_t segment = 0;
    size_t begin = 0, end = 0;
    absl::Span<const TableKey> Of(absl::Span<const TableKey> keys) const {
      return keys.subspan(begin, end - begin);
    }
  };
  // REQUIRES: `keys` are from CheckKeys with the buckets of this shard.
  std::vector<Piece> PiecesOf(absl::Span<const TableKey> keys) const;

  // Adds up what writes have done. Logs keys that got no row, at each tenfold number of them.
  // Takes no lock.
  void Note(const TableCounts& counts);
  // What the part has now, and what has become of keys so far. Takes no lock, so that a core may
  // ask. While requests run, the numbers may be of different moments.
  TablePartStats stats() const;

  // Calls use(segment) under the segment's lock. Blocks only while another thread is in the
  // segment.
  template <typename Use>
  void With(int64_t segment, const Use& use) {
    Locked& locked = segments_[static_cast<size_t>(segment)];
    MutexLock lock(locked.mutex);
    use(locked.segment);
    locked.AddTo(totals_);
  }

 private:
  // TablePartStats as writers add to it.
  struct Totals {
    std::atomic<int64_t> rows{0}, waiting{0}, bytes{0}, admitted{0}, refused{0}, evicted{0};
  };
  struct Locked {
    Locked(const TableFormat& format, int64_t first, int64_t end, RowLimit& limit)
        : segment(format, first, end, limit) {}
    mutable Mutex mutex;
    TableSegment segment DIVVY_GUARDED_BY(mutex);
    // What `totals` has of this segment.
    int64_t rows DIVVY_GUARDED_BY(mutex) = 0;
    int64_t waiting DIVVY_GUARDED_BY(mutex) = 0;
    int64_t bytes DIVVY_GUARDED_BY(mutex) = 0;
    // Brings `totals` up to date with the size of the segment.
    void AddTo(Totals& totals) DIVVY_REQUIRES(mutex);
  };
  int64_t SegmentOf(uint64_t mixed) const {
    return (BucketOf(mixed) - first_bucket_) / buckets_of_segment_;
  }

  const TableFormat format_;
  const int64_t first_bucket_, end_bucket_, buckets_of_segment_;
  RowLimit limit_;
  std::deque<Locked> segments_;
  Totals totals_;
  mutable Mutex options_mu_;
  std::shared_ptr<const TableOptions> options_ DIVVY_GUARDED_BY(options_mu_);
  // The number of refused keys at which the next line is logged.
  std::atomic<int64_t> log_at_{1};
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_TABLE_SHARD_H_
