#include "ps_server/core/table/table_segment.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <variant>

#include "base/random.h"
#include "initializers/key_row.h"
#include "kernels/elements.h"
#include "tensor/dtype.h"

namespace divvy {
namespace {

constexpr uint32_t kNoRow = RowSlabs::kNoRow;

int64_t SlotBytes(const SlotSpec& slot, int64_t width) {
  return slot.kind == SlotSpec::Kind::kValues ? width * 4 : 4;
}

// Elements of four bytes each.
void FillSlot(const SlotSpec& slot, int64_t width, char* to) {
  if (slot.kind == SlotSpec::Kind::kRowCounts) {
    const auto initial = static_cast<int32_t>(slot.initial_value);
    std::memcpy(to, &initial, sizeof initial);
    return;
  }
  const int64_t elements = SlotBytes(slot, width) / 4;
  std::fill_n(reinterpret_cast<float*>(to), elements, slot.initial_value);
}

double NormSquared(const float* values, int64_t width) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

uint32_t Increased(uint32_t count) {
  return count < std::numeric_limits<uint32_t>::max() ? count + 1 : count;
}

// The places of a key's counters among the `size` of its bucket.
constexpr int kCountersOfKey = 3;
std::array<int64_t, kCountersOfKey> CountersOf(uint64_t mixed, int64_t size) {
  const uint64_t start = mixed >> 16, stride = (mixed >> 40) | 1;
  std::array<int64_t, kCountersOfKey> places;
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<int64_t>((start + i * stride) % static_cast<uint64_t>(size));
  return places;
}

}  // namespace

// ---- the format of a row ------------------------------------------------------------------------

TableFormat::TableFormat(InitializerContext context, Initializer initializer, TableOptions options,
                         int64_t width, std::vector<SlotSpec> slots)
    : context(std::move(context)),
      initializer(std::move(initializer)),
      options(std::move(options)),
      width(width),
      slots(std::move(slots)),
      slots_at(PlacesOf(this->slots, width)),
      row_bytes(BytesOf(this->slots, width)) {}

std::vector<int64_t> TableFormat::PlacesOf(const std::vector<SlotSpec>& slots, int64_t width) {
  std::vector<int64_t> places;
  int64_t at = kValuesAt + width * 4;
  for (const SlotSpec& slot : slots) {
    places.push_back(at);
    at += SlotBytes(slot, width);
  }
  return places;
}

int64_t TableFormat::BytesOf(const std::vector<SlotSpec>& slots, int64_t width) {
  constexpr int64_t kAlignment = alignof(RowHead);
  int64_t bytes = kValuesAt + width * 4;
  for (const SlotSpec& slot : slots) bytes += SlotBytes(slot, width);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// ---- reading ------------------------------------------------------------------------------------

TableSegment::TableSegment(const TableFormat& format, int64_t first_bucket, int64_t end_bucket,
                           int64_t most_rows)
    : format_(format),
      first_bucket_(first_bucket),
      end_bucket_(end_bucket),
      most_rows_(most_rows),
      rows_(format.row_bytes),
      counters_(sizeof(RowHead)) {}

uint32_t TableSegment::RowOf(const TableKey& key) const {
  return index_.Find(key.mixed, [&](uint32_t row) { return rows_.head(row).key == key.key; });
}

const char* TableSegment::Find(const TableKey& key) const {
  const uint32_t row = RowOf(key);
  return row == kNoRow ? nullptr : rows_.at(row);
}

// The rows of a large table are in no cache. So the entries of several keys are loaded side by
// side, and then their rows.
void TableSegment::Prefetch(absl::Span<const TableKey> keys) const {
  constexpr int64_t kLine = 64, kMostBytes = 16 * kLine;
  for (const TableKey& key : keys) index_.Prefetch(key.mixed);
  for (const TableKey& key : keys) {
    const uint32_t row = index_.Guess(key.mixed);
    if (row == kNoRow) continue;
    const char* const at = rows_.at(row);
    for (int64_t i = 0; i < std::min(format_.row_bytes, kMostBytes); i += kLine)
      __builtin_prefetch(at + i);
  }
}

void TableSegment::Read(absl::Span<const TableKey> keys, float* out) const {
  const auto width = static_cast<size_t>(format_.width);
  for (size_t begin = 0; begin < keys.size(); begin += kTogether) {
    const absl::Span<const TableKey> group = keys.subspan(begin, kTogether);
    Prefetch(group);
    for (size_t i = 0; i < group.size(); ++i) {
      float* const to = out + (begin + i) * width;
      if (const uint32_t row = RowOf(group[i]); row != kNoRow) {
        std::copy_n(values(row), width, to);
      } else if (format_.options.absent == TableOptions::Absent::kZeros) {
        std::fill_n(to, width, 0.0f);
      } else {
        FillKeyRow(format_.initializer, format_.context, group[i].key, absl::MakeSpan(to, width));
      }
    }
  }
}

// ---- admission ----------------------------------------------------------------------------------

bool TableSegment::AdmitsByCounter(const TableKey& key, int64_t steps, uint32_t tick,
                                   uint32_t& count) {
  uint32_t counter = counter_index_.Find(
      key.mixed, [&](uint32_t row) { return counters_.head(row).key == key.key; });
  count = counter == kNoRow ? 0 : counters_.head(counter).count;
  if (int64_t{count} + 1 >= steps) {
    if (counter == kNoRow) return true;
    counter_index_.Erase(key.mixed, counter);
    counters_.Free(counter);
    return true;
  }
  if (counter == kNoRow) {
    counter = counters_.Take();
    if (counter == kNoRow) return false;
    counters_.head(counter).key = key.key;
    counter_index_.Insert(key.mixed, counter);
  }
  RowHead& head = counters_.head(counter);
  head.count = count + 1;
  head.tick = std::max(head.tick, tick);
  return false;
}

// Counters are of buckets, so what they say does not depend on how the table is cut.
bool TableSegment::AdmitsByFilter(const TableKey& key, const AdmitAfter& rule, uint32_t& count) {
  const int64_t size = rule.counter_bytes / kTableBuckets;
  if (filter_.empty()) filter_.resize(static_cast<size_t>((end_bucket_ - first_bucket_) * size));
  uint8_t* const counters = filter_.data() + (BucketOf(key.mixed) - first_bucket_) * size;
  const std::array<int64_t, kCountersOfKey> places = CountersOf(key.mixed, size);
  uint8_t least = std::numeric_limits<uint8_t>::max();
  for (const int64_t place : places) least = std::min(least, counters[place]);
  count = least;
  if (int64_t{least} + 1 >= rule.steps) return true;
  // Only the lowest ones count, so that colliding keys disturb each other less.
  for (const int64_t place : places) {
    if (counters[place] == least) counters[place] = static_cast<uint8_t>(least + 1);
  }
  return false;
}

bool TableSegment::AdmitsByChance(const TableKey& key, double probability, uint64_t entry) const {
  const InitializerContext& context = format_.context;
  const uint64_t seed =
      MixSeeds(MixSeeds(context.job_seed, HashText(context.name)), /*admission*/ 1);
  const uint32_t drawn = Philox4x32(seed, static_cast<uint64_t>(key.key), entry)[0];
  return (drawn + 0.5) * 0x1.0p-32 < probability;
}

bool TableSegment::Admits(const TableKey& key, const TableStamp& stamp, uint32_t& count) {
  const Admission& admission = format_.options.admission;
  if (const auto* after = std::get_if<AdmitAfter>(&admission)) {
    return after->counter_bytes > 0 ? AdmitsByFilter(key, *after, count)
                                    : AdmitsByCounter(key, after->steps, stamp.tick, count);
  }
  if (const auto* chance = std::get_if<AdmitWithProbability>(&admission))
    return AdmitsByChance(key, chance->probability, stamp.entry);
  return true;
}

// ---- writing ------------------------------------------------------------------------------------

uint32_t TableSegment::Make(const TableKey& key) {
  const uint32_t row = rows_.Take();
  if (row == kNoRow) return kNoRow;
  rows_.head(row).key = key.key;
  FillKeyRow(format_.initializer, format_.context, key.key,
             absl::MakeSpan(values(row), static_cast<size_t>(format_.width)));
  for (size_t i = 0; i < format_.slots.size(); ++i)
    FillSlot(format_.slots[i], format_.width, rows_.at(row) + format_.slots_at[i]);
  index_.Insert(key.mixed, row);
  return row;
}

void TableSegment::Remove(uint32_t row) {
  index_.Erase(MixKey(rows_.head(row).key), row);
  rows_.Free(row);
}

// Whether one more row may be made.
bool TableSegment::MakeRoom(TableCounts& counts) {
  if (most_rows_ == 0 || rows_.rows() < most_rows_) return true;
  const Eviction& eviction = format_.options.eviction;
  if (std::holds_alternative<EvictLeastUsed>(eviction))
    counts.evicted += RemoveLeast([](const RowHead& head) { return uint64_t{head.count}; });
  if (std::holds_alternative<EvictLeastRecent>(eviction))
    counts.evicted += RemoveLeast([](const RowHead& head) { return uint64_t{head.tick}; });
  return rows_.rows() < most_rows_;
}

uint32_t TableSegment::RowToWrite(const TableKey& key, const TableStamp& stamp,
                                  TableCounts& counts) {
  if (const uint32_t row = RowOf(key); row != kNoRow) return row;
  uint32_t count = 0;
  if (!Admits(key, stamp, count)) {
    ++counts.waiting;
    return kNoRow;
  }
  const uint32_t row = MakeRoom(counts) ? Make(key) : kNoRow;
  if (row == kNoRow) {
    ++counts.refused;
    return kNoRow;
  }
  ++counts.made;
  rows_.head(row).count = count;
  return row;
}

template <typename Change>
TableCounts TableSegment::Write(absl::Span<const TableKey> keys, const TableStamp& stamp,
                                const Change& change) {
  TableCounts counts;
  for (size_t begin = 0; begin < keys.size(); begin += kTogether) {
    const absl::Span<const TableKey> group = keys.subspan(begin, kTogether);
    Prefetch(group);
    for (size_t i = 0; i < group.size(); ++i) {
      const uint32_t row = RowToWrite(group[i], stamp, counts);
      if (row == kNoRow) continue;
      RowHead& head = rows_.head(row);
      head.count = Increased(head.count);
      head.tick = std::max(head.tick, stamp.tick);
      change(row, begin + i);
    }
  }
  return counts;
}

ParameterBlock TableSegment::BlockOf(uint32_t row) const {
  const auto width = static_cast<size_t>(format_.width);
  ParameterBlock block;
  block.values = absl::MakeSpan(values(row), width);
  block.width = format_.width;
  for (size_t i = 0; i < format_.slots.size(); ++i) {
    char* const at = rows_.at(row) + format_.slots_at[i];
    switch (format_.slots[i].kind) {
      case SlotSpec::Kind::kValues:
        block.slots[i].values = absl::MakeSpan(reinterpret_cast<float*>(at), width);
        break;
      case SlotSpec::Kind::kRowValues:
        block.slots[i].values = absl::MakeSpan(reinterpret_cast<float*>(at), 1);
        break;
      case SlotSpec::Kind::kRowCounts:
        block.slots[i].counts = absl::MakeSpan(reinterpret_cast<int32_t*>(at), 1);
        break;
    }
  }
  return block;
}

TableCounts TableSegment::ApplyGradients(absl::Span<const TableKey> keys, const float* gradients,
                                         const OptimizerStep& step, const TableStamp& stamp) {
  const auto width = static_cast<size_t>(format_.width);
  return Write(keys, stamp, [&](uint32_t row, size_t i) {
    ApplyDense(step, BlockOf(row), absl::MakeConstSpan(gradients + i * width, width));
  });
}

TableCounts TableSegment::ApplyValues(absl::Span<const TableKey> keys, const float* values,
                                      WriteOp op, const TableStamp& stamp) {
  return Write(keys, stamp, [&](uint32_t row, size_t i) {
    ApplyElements(op, DType::kFloat32, reinterpret_cast<char*>(this->values(row)),
                  reinterpret_cast<const char*>(values + i * static_cast<size_t>(format_.width)),
                  format_.width);
  });
}

// ---- eviction -----------------------------------------------------------------------------------

int64_t TableSegment::RemoveIf(int64_t first, int64_t end,
                               absl::FunctionRef<bool(uint32_t)> is_over) {
  int64_t removed = 0;
  for (uint32_t row = 0; row < rows_.end(); ++row) {
    if (rows_.is_free(row)) continue;
    const int64_t bucket = BucketOf(MixKey(rows_.head(row).key));
    if (bucket < first || bucket >= end || !is_over(row)) continue;
    Remove(row);
    ++removed;
  }
  return removed;
}

// Leaves 95 % of the most rows. Of rows with the same rank, those with the smaller mixed key go.
int64_t TableSegment::RemoveLeast(absl::FunctionRef<uint64_t(const RowHead&)> rank) {
  std::vector<std::tuple<uint64_t, uint64_t, uint32_t>> rows;
  for (uint32_t row = 0; row < rows_.end(); ++row) {
    if (!rows_.is_free(row))
      rows.emplace_back(rank(rows_.head(row)), MixKey(rows_.head(row).key), row);
  }
  const int64_t kept = most_rows_ - std::max<int64_t>(1, most_rows_ / 20),
                over = std::max<int64_t>(0, static_cast<int64_t>(rows.size()) - kept);
  std::nth_element(rows.begin(), rows.begin() + over, rows.end());
  for (int64_t i = 0; i < over; ++i) Remove(std::get<2>(rows[static_cast<size_t>(i)]));
  return over;
}

TableCounts TableSegment::Evict(int64_t first, int64_t end, uint32_t now) {
  TableCounts counts;
  const Eviction& eviction = format_.options.eviction;
  if (const auto* below = std::get_if<EvictBelowNorm>(&eviction)) {
    const double least = static_cast<double>(below->norm) * below->norm;
    counts.evicted = RemoveIf(
        first, end, [&](uint32_t row) { return NormSquared(values(row), format_.width) < least; });
  }
  if (const auto* unused = std::get_if<EvictUnusedFor>(&eviction)) {
    const int64_t minutes = absl::ToInt64Minutes(unused->duration);
    const auto is_old = [&](const RowHead& head) {
      return int64_t{now} - int64_t{head.tick} >= minutes;
    };
    counts.evicted = RemoveIf(first, end, [&](uint32_t row) { return is_old(rows_.head(row)); });
    for (uint32_t row = 0; row < counters_.end(); ++row) {
      if (counters_.is_free(row) || !is_old(counters_.head(row))) continue;
      const uint64_t mixed = MixKey(counters_.head(row).key);
      if (BucketOf(mixed) < first || BucketOf(mixed) >= end) continue;
      counter_index_.Erase(mixed, row);
      counters_.Free(row);
    }
  }
  return counts;
}

int64_t TableSegment::bytes() const {
  return rows_.bytes() + index_.bytes() + counters_.bytes() + counter_index_.bytes() +
         static_cast<int64_t>(filter_.size());
}

// ---- checkpoints --------------------------------------------------------------------------------

bool TableSegment::Restore(const TableKey& key, const RowHead& head, absl::Span<const float> values,
                           absl::Span<const absl::Span<const char>> slots) {
  const uint32_t row = rows_.Take();
  if (row == kNoRow) return false;
  rows_.head(row) = {key.key, head.count, head.tick};
  std::copy(values.begin(), values.end(), this->values(row));
  for (size_t i = 0; i < slots.size(); ++i)
    std::copy(slots[i].begin(), slots[i].end(), rows_.at(row) + format_.slots_at[i]);
  index_.Insert(key.mixed, row);
  return true;
}

bool TableSegment::RestoreWaiting(const TableKey& key, const RowHead& head) {
  const uint32_t row = counters_.Take();
  if (row == kNoRow) return false;
  counters_.head(row) = {key.key, head.count, head.tick};
  counter_index_.Insert(key.mixed, row);
  return true;
}

}  // namespace divvy
