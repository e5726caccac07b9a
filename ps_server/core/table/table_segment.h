// The rows of some buckets of a dynamic table.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_TABLE_SEGMENT_H_
#define DIVVY_PS_SERVER_CORE_TABLE_TABLE_SEGMENT_H_

#include <atomic>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "initializers/initializer.h"
#include "kernels/halves.h"
#include "kernels/write_op.h"
#include "optimizers/apply.h"
#include "optimizers/optimizer.h"
#include "ps_server/core/table/frozen_segment.h"
#include "ps_server/core/table/keyed_rows.h"
#include "tensor/dtype.h"
#include "variables/table_options.h"

namespace divvy {

// Whether keys that wait to be admitted have exact counts.
bool CountsExactly(const TableOptions& options);
// The bytes of the counting Bloom filter for each bucket; 0: there is none.
int64_t FilterBytesOf(const TableOptions& options);

// What all segments of a table share. Immutable, so thread-safe.
struct TableFormat {
  // REQUIRES: width >= 1; Validate is OK for the options and the initializer, which is
  // EvaluatedPerKey; at most ParameterBlock::kMaxSlots slots; `dtype` is float32, float16 or
  // bfloat16.
  TableFormat(InitializerContext context, Initializer initializer, TableOptions options,
              int64_t width, std::vector<SlotSpec> slots, DType dtype = DType::kFloat32);

  const InitializerContext context;
  const Initializer initializer;
  // With which the table begins (TableSegment::SetOptions).
  const TableOptions options;
  // elements of a row
  const int64_t width;
  // Of the values as they are stored. Slots are float32 and int32, and so is all arithmetic: what
  // it gives is rounded up or down at random, and what is assigned to nearest.
  const DType dtype;
  const int64_t value_bytes;
  const std::vector<SlotSpec> slots;
  // A row is its head, its values, then its slots, one after another, at multiples of 4 bytes.
  static constexpr int64_t kValuesAt = sizeof(RowHead);
  // [slots + 1] where each slot begins, and where the last one ends. Slots have no gaps.
  const std::vector<int64_t> slots_at;
  const int64_t row_bytes;
  // of the draws of AdmitWithProbability
  const uint64_t admission_seed;
  // of the roundings
  const uint64_t rounding_seed;

  // Rows as they are stored, from and to float32.
  void ToFloats(const char* values, float* out) const {
    if (dtype == DType::kFloat32)
      std::memcpy(out, values, static_cast<size_t>(value_bytes));
    else
      FromHalves(dtype, values, width, out);
  }
  void ToStored(const float* values, char* out) const {
    if (dtype == DType::kFloat32)
      std::memcpy(out, values, static_cast<size_t>(value_bytes));
    else
      ToHalves(dtype, values, width, out);
  }

 private:
  std::vector<int64_t> PlacesOf() const;
};

// The step that writes.
struct TableStamp {
  uint64_t entry = 0;
  // Minutes of the coordinator's clock, when the step was dispatched.
  uint32_t tick = 0;
};

// The keys that a step names in a segment, if it writes there several times: those of each write,
// in the order of TableOrder, and which of the writes comes now.
struct NamedKeys {
  absl::Span<const absl::Span<const TableKey>> writes;
  size_t current = 0;
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
  // `memory` limits the memory of the segments.
  explicit RowLimit(int64_t most,
                    std::shared_ptr<TableMemory> memory = std::make_shared<TableMemory>())
      : most_(most), memory_(std::move(memory)) {}
  // False: the part is full.
  bool Take() {
    // Not "add, compare, subtract": another thread would meet the row that is not there.
    int64_t rows = rows_.load(std::memory_order_relaxed);
    while (rows < most_.load(std::memory_order_relaxed)) {
      if (rows_.compare_exchange_weak(rows, rows + 1, std::memory_order_relaxed)) return true;
    }
    return false;
  }
  // Of a row that exists already, such as one of a checkpoint. The part may become more than full.
  void TakeAnyway() { rows_.fetch_add(1, std::memory_order_relaxed); }
  void GiveBack() { rows_.fetch_sub(1, std::memory_order_relaxed); }
  // The part may become more than full: it then gets no row until so many are gone.
  void SetMost(int64_t most) { most_.store(most, std::memory_order_relaxed); }
  const std::shared_ptr<TableMemory>& memory() const { return memory_; }

 private:
  std::atomic<int64_t> most_;
  const std::shared_ptr<TableMemory> memory_;
  std::atomic<int64_t> rows_{0};
};

// Rows of a segment at one moment, in no order.
struct SegmentRows {
  std::vector<char> rows;  // [n, TableFormat::row_bytes]
  std::vector<RowHead> waiting;
  // Of the whole segment, in the first of its parts.
  std::vector<uint8_t> filter;
  // There was no memory to keep what was changed meanwhile.
  bool is_lost = false;
  // No rows are left to take.
  bool is_last = false;
};

// Not thread-safe: the owner's lock guards it. Nothing here fails: a key whose row finds no memory
// is refused. (Memory for an index is not checked, as elsewhere for small objects.) REQUIRES of
// every key: its bucket is in the segment.
class TableSegment {
 public:
  // Holds buckets [first_bucket, end_bucket). `format` and `limit` outlive it.
  TableSegment(const TableFormat& format, int64_t first_bucket, int64_t end_bucket,
               RowLimit& limit);
  ~TableSegment();
  TableSegment(const TableSegment&) = delete;
  TableSegment& operator=(const TableSegment&) = delete;

  // ---- reading
  // Fills out[i * width ..] with the values of keys[i]. A key without a row gives what its table's
  // `absent` says. Makes no row.
  void Read(absl::Span<const TableKey> keys, float* out) const;
  // Fills out[i * 2 ..] with the count and the tick of the row of keys[i]; -1 and 0: it has none.
  void ReadRecords(absl::Span<const TableKey> keys, int64_t* out) const;
  // The head, values and slots of a key's row, until the next write. Null: it has none.
  const char* Find(const TableKey& key) const;

  // ---- writing. A step counts once for each key, and evicts none of its keys: if it writes to the
  // segment by several calls, each gets `named`. A key that got no row by the first of them gets
  // none by the others. REQUIRES: the keys of a call are unique, and in TableOrder.
  // Applies gradient row i, at gradients + i * width, to the row of keys[i]; makes the row if the
  // table's rules admit the key. REQUIRES: the slots of `step` are those of the format; the thread
  // has FlushDenormals.
  TableCounts ApplyGradients(absl::Span<const TableKey> keys, const float* gradients,
                             const OptimizerStep& step, const TableStamp& stamp,
                             const NamedKeys& named = {});
  // As ApplyGradients, with `op` on the elements of each row. kAssign admits every key. REQUIRES:
  // op takes float32.
  TableCounts ApplyValues(absl::Span<const TableKey> keys, const float* values, WriteOp op,
                          const TableStamp& stamp, const NamedKeys& named = {});
  // Sets how many steps have named each of the keys, 0 and 2^32 - 1 at the ends of the range. Makes
  // no row, and leaves out keys that have none.
  void SetCounts(absl::Span<const TableKey> keys, absl::Span<const int64_t> counts);
  // Evicts by the table's rule the rows of buckets [first, end), and with EvictUnusedFor also the
  // exact counts of keys that wait there. EvictLeastUsed and EvictLeastRecent need no call: a write
  // that meets a full part evicts first. Reads only the rows of these buckets.
  TableCounts Evict(int64_t first, int64_t end, uint32_t now);
  // The rows and exact counts of the buckets [first, end) of which the segment has some.
  int64_t CountOf(int64_t first, int64_t end) const;
  // A write that changes no value: it makes rows and counts. For the simulation, which breaks rules
  // (base/breakable.h).
  TableCounts Touch(absl::Span<const TableKey> keys, const TableStamp& stamp);
  // Goes on with other options; `max_rows` is the limit's. As after a restore by these options,
  // what waits to be admitted stays if the new rule counts in the same way, and else is counted
  // anew.
  void SetOptions(std::shared_ptr<const TableOptions> options);

  int64_t rows() const { return rows_.slabs().rows(); }
  int64_t waiting() const { return counters_.slabs().rows(); }
  // Memory of rows, indexes and counts.
  int64_t bytes() const;

  // ---- checkpoints
  // Before so many rows and waiting counts are restored bucket by bucket.
  void Reserve(size_t rows, size_t waiting) { rows_.Reserve(rows), counters_.Reserve(waiting); }
  // The rows as they are now.
  SegmentRows Copy() const;
  // Gives a row to a key: its head, values and slots as they lie in a row. False: no memory.
  // REQUIRES: the key has no row; as many values and slots as the format has, each with its bytes.
  bool Restore(const TableKey& key, const RowHead& head, absl::Span<const char> values,
               absl::Span<const absl::Span<const char>> slots);
  // As Restore, for a key that waits to be admitted.
  bool RestoreWaiting(const TableKey& key, const RowHead& head);
  // [buckets, bytes of a bucket]; empty: all zero. False: no memory.
  bool RestoreFilter(std::vector<uint8_t> filter);
  // From now on, `frozen` gets a copy of what a write is about to change. Null: nobody wants one.
  void Freeze(FrozenSegment* frozen) { frozen_ = frozen; }
  const FrozenSegment* frozen() const { return frozen_; }
  // Takes the rows of the next buckets as they were at Freeze(&own), some thousand rows at a time,
  // so that the lock is held briefly. The last of them end that freeze. Nullopt: another freeze has
  // taken its place.
  std::optional<SegmentRows> TakeRows(FrozenSegment& own);
  const RowSlabs& slabs() const { return rows_.slabs(); }
  const RowSlabs& waiting_slabs() const { return counters_.slabs(); }

 private:
  static constexpr size_t kTogether = 16;
  // Rows that are looked at under the lock at a time.
  static constexpr int64_t kRowsAtATime = 4096;
  // Some buckets, [first, end).
  struct Buckets {
    int64_t first = 0, end = 0;
  };
  // Neighbouring buckets that have about kRowsAtATime rows and counts together, `bucket` among
  // them; all, if the segment has fewer.
  Buckets NeighboursOf(int64_t bucket) const;
  // How many buckets have about kRowsAtATime rows and counts.
  int64_t BucketsAtATime() const;
  // The buckets [first, end) that the segment has.
  Buckets Within(int64_t first, int64_t end) const;
  // What a write makes of a row. kAssignedToAnyKey: the key gets a row whatever the rules say.
  enum class Result : uint8_t { kComputed, kAssigned, kAssignedToAnyKey };
  // The row of a key that has none, made if it is admitted. kNoRow: it is not made.
  uint32_t RowToWrite(const TableKey& key, const NamedKeys& named, Result result,
                      const TableStamp& stamp, TableCounts& counts);
  // Whether a key without a row gets one now. If so, `before` tells which steps have named it.
  enum class Verdict : uint8_t { kAdmitted, kWaits, kNoMemory };
  Verdict Admits(const TableKey& key, const TableStamp& stamp, RowHead& before);
  Verdict AdmitsByCounter(const TableKey& key, int64_t steps, uint32_t tick, RowHead& before);
  Verdict AdmitsByFilter(const TableKey& key, const AdmitAfter& rule, RowHead& before);
  // Memory for the filter. False: there is none.
  bool MakeFilter(int64_t bytes_of_bucket);
  bool AdmitsByChance(const TableKey& key, double probability, uint64_t entry) const;
  // Takes a row from the limit for `key`. Evicts none of the rows that the step names.
  bool MakeRoom(const TableKey& key, const NamedKeys& named, TableCounts& counts);
  uint32_t Make(const TableKey& key);
  void FillInitial(int64_t key, float* to) const;
  void Remove(uint32_t row);
  void RemoveCounters();
  void RemoveFilter();
  int64_t RemoveLeast(const Buckets& buckets, const NamedKeys& named,
                      absl::FunctionRef<uint64_t(const RowHead&)> rank);
  // Gives the key's row and count to frozen_, if somebody wants them.
  void Keep(const TableKey& key);
  void Prefetch(absl::Span<const TableKey> keys) const;
  // A row and its slots. `halves`: the row's values as floats, if it stores halves.
  ParameterBlock BlockOf(uint32_t row, absl::Span<float> halves) const;
  char* values(uint32_t row) const { return rows_.at(row) + TableFormat::kValuesAt; }
  // change(block, i) changes the row of keys[i].
  template <typename Change>
  TableCounts Write(absl::Span<const TableKey> keys, const TableStamp& stamp,
                    const NamedKeys& named, Result result, const Change& change);
  // Stores what a write made of a row's values, if the row stores halves.
  void Store(uint32_t row, absl::Span<const float> halves, Result result, uint64_t entry,
             int64_t write) const;

  const TableFormat& format_;
  // Never null.
  std::shared_ptr<const TableOptions> options_;
  const int64_t first_bucket_, end_bucket_;
  RowLimit& limit_;
  KeyedRows rows_;
  // Exact counts of keys that wait to be admitted.
  KeyedRows counters_;
  // The counting Bloom filter: so many bytes for each bucket. Empty before the first key.
  std::vector<uint8_t> filter_;
  FrozenSegment* frozen_ = nullptr;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_TABLE_SEGMENT_H_
