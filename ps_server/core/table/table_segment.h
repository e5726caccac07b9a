// The rows of some buckets of a dynamic table.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_TABLE_SEGMENT_H_
#define DIVVY_PS_SERVER_CORE_TABLE_TABLE_SEGMENT_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "initializers/initializer.h"
#include "kernels/write_op.h"
#include "optimizers/apply.h"
#include "optimizers/optimizer.h"
#include "ps_server/core/table/keyed_rows.h"
#include "variables/table_options.h"

namespace divvy {

// What all segments of a table share. Immutable, so thread-safe.
struct TableFormat {
  // REQUIRES: width >= 1; Validate is OK for the options and the initializer, which is
  // EvaluatedPerKey; at most ParameterBlock::kMaxSlots slots.
  TableFormat(InitializerContext context, Initializer initializer, TableOptions options,
              int64_t width, std::vector<SlotSpec> slots);

  const InitializerContext context;
  const Initializer initializer;
  const TableOptions options;
  // elements of a row
  const int64_t width;
  const std::vector<SlotSpec> slots;
  // A row is its head, its values, then its slots, one after another.
  static constexpr int64_t kValuesAt = sizeof(RowHead);
  // [slots + 1] where each slot begins, and where the last one ends
  const std::vector<int64_t> slots_at;
  const int64_t row_bytes;
  // of the draws of AdmitWithProbability
  const uint64_t admission_seed;

 private:
  static std::vector<int64_t> PlacesOf(const std::vector<SlotSpec>& slots, int64_t width);
};

// The step that writes.
struct TableStamp {
  uint64_t entry = 0;
  // Minutes of the coordinator's clock, when the step was dispatched.
  uint32_t tick = 0;
};

// What became of the keys of a request.
struct TableCounts {
  // Keys that got a row.
  int64_t made = 0;
  // Keys that were not admitted.
  int64_t waiting = 0;
  // Keys that were admitted and got no row: the part is full, or there is no memory.
  int64_t refused = 0;
  // Rows that are gone.
  int64_t evicted = 0;
  void operator+=(const TableCounts& other) {
    made += other.made;
    waiting += other.waiting;
    refused += other.refused;
    evicted += other.evicted;
  }
};

// The rows that one part of a table has, and may have. Thread-safe: all its segments count here.
class RowLimit {
 public:
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  explicit RowLimit(int64_t most) : most_(most) {}
  // False: the part is full.
  bool Take() {
    if (rows_.fetch_add(1, std::memory_order_relaxed) < most_) return true;
    GiveBack();
    return false;
  }
  // Of a row that exists already, such as one of a checkpoint. The part may become more than full.
  void TakeAnyway() { rows_.fetch_add(1, std::memory_order_relaxed); }
  void GiveBack() { rows_.fetch_sub(1, std::memory_order_relaxed); }

 private:
  const int64_t most_;
  std::atomic<int64_t> rows_{0};
};

// Not thread-safe: the owner's lock guards it. Nothing here fails: a key whose row finds no memory
// is refused. (Memory for an index is not checked, as elsewhere for small objects.) REQUIRES of
// every key: its bucket is in the segment.
class TableSegment {
 public:
  // Holds buckets [first_bucket, end_bucket). `format` and `limit` outlive it.
  TableSegment(const TableFormat& format, int64_t first_bucket, int64_t end_bucket,
               RowLimit& limit);
  TableSegment(const TableSegment&) = delete;
  TableSegment& operator=(const TableSegment&) = delete;

  // ---- reading
  // Fills out[i * width ..] with the values of keys[i]. A key without a row gives what its table's
  // `absent` says. Makes no row.
  void Read(absl::Span<const TableKey> keys, float* out) const;
  // The head, values and slots of a key's row, until the next write. Null: it has none.
  const char* Find(const TableKey& key) const;

  // ---- writing. REQUIRES: the keys of a call are unique.
  // Applies gradient row i, at gradients + i * width, to the row of keys[i]; makes the row if the
  // table's rules admit the key. REQUIRES: the slots of `step` are those of the format; the thread
  // has FlushDenormals.
  TableCounts ApplyGradients(absl::Span<const TableKey> keys, const float* gradients,
                             const OptimizerStep& step, const TableStamp& stamp);
  // As ApplyGradients, with `op` on the elements of each row. REQUIRES: op takes float32.
  TableCounts ApplyValues(absl::Span<const TableKey> keys, const float* values, WriteOp op,
                          const TableStamp& stamp);
  // Evicts by the table's rule the rows of buckets [first, end), and with EvictUnusedFor also the
  // exact counts of keys that wait there. EvictLeastUsed and EvictLeastRecent need no call: a write
  // that meets a full part evicts first. Looks at every row of the segment.
  TableCounts Evict(int64_t first, int64_t end, uint32_t now);

  int64_t rows() const { return rows_.slabs().rows(); }
  int64_t waiting() const { return counters_.slabs().rows(); }
  // Memory of rows, indexes and counts.
  int64_t bytes() const;

  // ---- checkpoints
  // Gives a row to a key: its head, values and slots as they lie in a row. False: no memory.
  // REQUIRES: the key has no row; as many values and slots as the format has, each slot with its
  // bytes.
  bool Restore(const TableKey& key, const RowHead& head, absl::Span<const float> values,
               absl::Span<const absl::Span<const char>> slots);
  // As Restore, for a key that waits to be admitted.
  bool RestoreWaiting(const TableKey& key, const RowHead& head);
  const RowSlabs& slabs() const { return rows_.slabs(); }
  const RowSlabs& waiting_slabs() const { return counters_.slabs(); }

 private:
  static constexpr size_t kTogether = 16;
  // The row of a key, made if it is admitted. kNoRow: it has none. `named`: all keys of the call.
  uint32_t RowToWrite(const TableKey& key, absl::Span<const TableKey> named,
                      const TableStamp& stamp, TableCounts& counts);
  // Whether a key without a row gets one now. If so, `before` tells which steps have named it.
  bool Admits(const TableKey& key, const TableStamp& stamp, RowHead& before);
  bool AdmitsByCounter(const TableKey& key, int64_t steps, uint32_t tick, RowHead& before);
  bool AdmitsByFilter(const TableKey& key, const AdmitAfter& rule, RowHead& before);
  bool AdmitsByChance(const TableKey& key, double probability, uint64_t entry) const;
  // Takes a row from the limit. Evicts none of the rows of `named`.
  bool MakeRoom(absl::Span<const TableKey> named, TableCounts& counts);
  uint32_t Make(const TableKey& key);
  void Remove(uint32_t row);
  int64_t RemoveLeast(absl::Span<const TableKey> named,
                      absl::FunctionRef<uint64_t(const RowHead&)> rank);
  void Prefetch(absl::Span<const TableKey> keys) const;
  ParameterBlock BlockOf(uint32_t row) const;
  float* values(uint32_t row) const {
    return reinterpret_cast<float*>(rows_.at(row) + TableFormat::kValuesAt);
  }
  template <typename Change>
  TableCounts Write(absl::Span<const TableKey> keys, const TableStamp& stamp, const Change& change);

  const TableFormat& format_;
  const int64_t first_bucket_, end_bucket_;
  RowLimit& limit_;
  KeyedRows rows_;
  // Exact counts of keys that wait to be admitted.
  KeyedRows counters_;
  // The counting Bloom filter: so many bytes for each bucket. Empty before the first key.
  std::vector<uint8_t> filter_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_TABLE_SEGMENT_H_
