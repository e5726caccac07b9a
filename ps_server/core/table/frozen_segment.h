// The rows of a segment as they were at one moment, while writes change them.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_FROZEN_SEGMENT_H_
#define DIVVY_PS_SERVER_CORE_TABLE_FROZEN_SEGMENT_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <vector>

#include "absl/container/btree_map.h"
#include "ps_server/core/table/row_slabs.h"
#include "variables/table_keys.h"

namespace divvy {

// Holds copies of what writes have changed since that moment. The segment keeps a key before it
// changes or removes its row or its count, or makes one. The rows are taken bucket by bucket, so
// that nobody holds the segment's lock for long; what has been taken is not kept any more. Not
// thread-safe: the segment's lock guards it. `kept_bytes` counts the copies of many segments; it
// outlives this object.
class FrozenSegment {
 public:
  explicit FrozenSegment(std::atomic<int64_t>& kept_bytes) : kept_bytes_(kept_bytes) {}
  FrozenSegment(const FrozenSegment&) = delete;
  FrozenSegment& operator=(const FrozenSegment&) = delete;
  ~FrozenSegment() { Clear(); }

  struct Kept {
    // Null: the key had no row.
    std::unique_ptr<char[]> row;
    // The count that waited to become a row.
    std::optional<RowHead> waiting;
  };
  // Whether a write has to keep this key (MixKey) before it changes its row.
  bool Wants(uint64_t mixed) const { return BucketOf(mixed) >= taken_end_ && !Has(mixed); }
  bool Has(uint64_t mixed) const { return kept_.count(TableOrder(mixed)) > 0; }
  // `row` and `waiting` may be null. REQUIRES: Wants(mixed).
  void Keep(uint64_t mixed, const char* row, int64_t row_bytes, const RowHead* waiting) {
    Kept& kept = kept_[TableOrder(mixed)];
    if (waiting != nullptr) kept.waiting = *waiting;
    Count(kKeptBytes);
    if (row == nullptr) return;
    kept.row.reset(new (std::nothrow) char[static_cast<size_t>(row_bytes)]);
    is_lost_ = is_lost_ || kept.row == nullptr;
    if (kept.row == nullptr) return;
    std::memcpy(kept.row.get(), row, static_cast<size_t>(row_bytes));
    Count(row_bytes);
  }
  bool WantsFilter() const { return taken_end_ == 0 && !filter_; }
  void KeepFilter(const std::vector<uint8_t>& filter) {
    filter_ = filter;
    Count(static_cast<int64_t>(filter.size()));
  }

  // There was no memory for a copy, so the rows of that moment are not known any more.
  bool is_lost() const { return is_lost_; }
  // The filter of that moment, where a write has kept it. It is taken with the first buckets.
  const std::optional<std::vector<uint8_t>>& filter() const { return filter_; }
  // The rows of all buckets before this one are taken. 0: none is.
  int64_t taken_end() const { return taken_end_; }
  // Calls visit(kept) for the keys of buckets [first, end), and frees these copies. `row_bytes` as
  // they were kept. Buckets before `end` are taken now.
  template <typename Visit>
  void Take(int64_t first, int64_t end, int64_t row_bytes, const Visit& visit) {
    const auto begin_of = [this](int64_t bucket) {
      return bucket == kTableBuckets ? kept_.end()
                                     : kept_.lower_bound(static_cast<uint64_t>(bucket) << 48);
    };
    const auto from = begin_of(first), to = begin_of(end);
    for (auto it = from; it != to; ++it) {
      visit(it->second);
      Count(-kKeptBytes - (it->second.row != nullptr ? row_bytes : 0));
    }
    kept_.erase(from, to);
    taken_end_ = end;
  }
  // Frees all copies.
  void Clear() {
    kept_.clear();
    filter_.reset();
    Count(-bytes_);
  }

 private:
  void Count(int64_t bytes) {
    bytes_ += bytes;
    kept_bytes_.fetch_add(bytes, std::memory_order_relaxed);
  }

  // Of a key, beside its row.
  static constexpr int64_t kKeptBytes = sizeof(Kept) + 16;
  std::atomic<int64_t>& kept_bytes_;
  // By TableOrder, so by bucket.
  absl::btree_map<uint64_t, Kept> kept_;
  std::optional<std::vector<uint8_t>> filter_;
  int64_t bytes_ = 0;
  int64_t taken_end_ = 0;
  bool is_lost_ = false;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_FROZEN_SEGMENT_H_
