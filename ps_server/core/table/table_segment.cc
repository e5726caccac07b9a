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

constexpr uint32_t kNoRow = KeyedRows::kNoRow;

int64_t SlotBytes(const SlotSpec& slot, int64_t width) {
  return slot.kind == SlotSpec::Kind::kValues ? width * 4 : 4;
}

int64_t Aligned(int64_t bytes) {
  constexpr int64_t kAlignment = alignof(RowHead);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
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

// The places of a key's counters among the `size` of its bucket. They differ. REQUIRES: size >= 3.
constexpr int kCountersOfKey = 3;
std::array<int64_t, kCountersOfKey> CountersOf(uint64_t mixed, int64_t size) {
  const auto counters = static_cast<uint64_t>(size);
  const uint64_t start = mixed >> 16, stride = 1 + (mixed >> 40) % ((counters - 1) / 2);
  std::array<int64_t, kCountersOfKey> places;
  for (size_t i = 0; i < places.size(); ++i)
    places[i] = static_cast<int64_t>((start + i * stride) % counters);
  return places;
}

// A tick as a row keeps it.
uint32_t Kept(uint32_t tick) { return std::min(tick, kFreeTick - 1); }

uint64_t Ranked(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

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
      row_bytes(Aligned(slots_at.back())),
      admission_seed(MixSeeds(MixSeeds(this->context.job_seed, HashText(this->context.name)),
                              /*admission*/ 1)) {}

std::vector<int64_t> TableFormat::PlacesOf(const std::vector<SlotSpec>& slots, int64_t width) {
  std::vector<int64_t> places;
  int64_t at = kValuesAt + width * 4;
  for (const SlotSpec& slot : slots) {
    places.push_back(at);
    at += SlotBytes(slot, width);
  }
  places.push_back(at);
  return places;
}

// ---- reading ------------------------------------------------------------------------------------

TableSegment::TableSegment(const TableFormat& format, int64_t first_bucket, int64_t end_bucket,
                           RowLimit& limit)
    : format_(format),
      first_bucket_(first_bucket),
      end_bucket_(end_bucket),
      limit_(limit),
      rows_(format.row_bytes),
      counters_(sizeof(RowHead)) {}

const char* TableSegment::Find(const TableKey& key) const {
  const uint32_t row = rows_.Find(key);
  return row == kNoRow ? nullptr : rows_.at(row);
}

// The rows of a large table are in no cache. So the entries of several keys are loaded side by
// side, and then their rows.
void TableSegment::Prefetch(absl::Span<const TableKey> keys) const {
  constexpr int64_t kLine = 64, kMostBytes = 16 * kLine;
  for (const TableKey& key : keys) rows_.index().Prefetch(key.mixed);
  for (const TableKey& key : keys) {
    const uint32_t row = rows_.index().Guess(key.mixed);
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
      if (const uint32_t row = rows_.Find(group[i]); row != kNoRow) {
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

// The counter of a key that is admitted stays until its row is made.
bool TableSegment::AdmitsByCounter(const TableKey& key, int64_t steps, uint32_t tick,
                                   RowHead& before) {
  uint32_t counter = counters_.Find(key);
  if (counter != kNoRow) before = counters_.head(counter);
  if (int64_t{before.count} + 1 >= steps) return true;
  if (counter == kNoRow) counter = counters_.Add(key);
  if (counter == kNoRow) return false;
  RowHead& head = counters_.head(counter);
  head.count = before.count + 1;
  head.tick = std::max(head.tick, Kept(tick));
  return false;
}

// Counters are of buckets, so what they say does not depend on how the table is cut.
bool TableSegment::AdmitsByFilter(const TableKey& key, const AdmitAfter& rule, RowHead& before) {
  const int64_t size = rule.counter_bytes / kTableBuckets;
  if (filter_.empty()) filter_.resize(static_cast<size_t>((end_bucket_ - first_bucket_) * size));
  uint8_t* const counters = filter_.data() + (BucketOf(key.mixed) - first_bucket_) * size;
  const std::array<int64_t, kCountersOfKey> places = CountersOf(key.mixed, size);
  uint8_t least = std::numeric_limits<uint8_t>::max();
  for (const int64_t place : places) least = std::min(least, counters[place]);
  before.count = least;
  if (int64_t{least} + 1 >= rule.steps) return true;
  // Only the lowest ones count, so that colliding keys disturb each other less.
  for (const int64_t place : places) {
    if (counters[place] == least) counters[place] = static_cast<uint8_t>(least + 1);
  }
  return false;
}

bool TableSegment::AdmitsByChance(const TableKey& key, double probability, uint64_t entry) const {
  const uint32_t drawn =
      Philox4x32(format_.admission_seed, static_cast<uint64_t>(key.key), entry)[0];
  return (drawn + 0.5) * 0x1.0p-32 < probability;
}

bool TableSegment::Admits(const TableKey& key, const TableStamp& stamp, RowHead& before) {
  const Admission& admission = format_.options.admission;
  if (const auto* after = std::get_if<AdmitAfter>(&admission)) {
    return after->counter_bytes > 0 ? AdmitsByFilter(key, *after, before)
                                    : AdmitsByCounter(key, after->steps, stamp.tick, before);
  }
  if (const auto* chance = std::get_if<AdmitWithProbability>(&admission))
    return AdmitsByChance(key, chance->probability, stamp.entry);
  return true;
}

// ---- writing ------------------------------------------------------------------------------------

uint32_t TableSegment::Make(const TableKey& key) {
  const uint32_t row = rows_.Add(key);
  if (row == kNoRow) return kNoRow;
  FillKeyRow(format_.initializer, format_.context, key.key,
             absl::MakeSpan(values(row), static_cast<size_t>(format_.width)));
  for (size_t i = 0; i < format_.slots.size(); ++i)
    FillSlot(format_.slots[i], format_.width, rows_.at(row) + format_.slots_at[i]);
  return row;
}

void TableSegment::Remove(uint32_t row) {
  rows_.Remove(row);
  limit_.GiveBack();
}

bool TableSegment::MakeRoom(absl::Span<const TableKey> named, TableCounts& counts) {
  if (limit_.Take()) return true;
  const Eviction& eviction = format_.options.eviction;
  if (std::holds_alternative<EvictLeastUsed>(eviction))
    counts.evicted +=
        RemoveLeast(named, [](const RowHead& head) { return Ranked(head.count, head.tick); });
  if (std::holds_alternative<EvictLeastRecent>(eviction))
    counts.evicted +=
        RemoveLeast(named, [](const RowHead& head) { return Ranked(head.tick, head.count); });
  return limit_.Take();
}

uint32_t TableSegment::RowToWrite(const TableKey& key, absl::Span<const TableKey> named,
                                  const TableStamp& stamp, TableCounts& counts) {
  if (const uint32_t row = rows_.Find(key); row != kNoRow) return row;
  RowHead before;
  if (!Admits(key, stamp, before)) {
    ++counts.waiting;
    return kNoRow;
  }
  const bool has_room = MakeRoom(named, counts);
  const uint32_t row = has_room ? Make(key) : kNoRow;
  if (row == kNoRow) {
    if (has_room) limit_.GiveBack();
    ++counts.refused;
    return kNoRow;
  }
  ++counts.made;
  rows_.head(row).count = before.count;
  rows_.head(row).tick = before.tick;
  if (const uint32_t counter = counters_.Find(key); counter != kNoRow) counters_.Remove(counter);
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
      const uint32_t row = RowToWrite(group[i], keys, stamp, counts);
      if (row == kNoRow) continue;
      RowHead& head = rows_.head(row);
      head.count = Increased(head.count);
      head.tick = std::max(head.tick, Kept(stamp.tick));
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
    ApplyElements(op, DType::kFloat32, this->values(row),
                  values + i * static_cast<size_t>(format_.width), format_.width);
  });
}

// ---- eviction -----------------------------------------------------------------------------------

// Removes 5 % of the segment's rows, at least one. Of rows with the same rank, those with the
// smaller mixed key go.
int64_t TableSegment::RemoveLeast(absl::Span<const TableKey> named,
                                  absl::FunctionRef<uint64_t(const RowHead&)> rank) {
  std::vector<uint32_t> kept;
  for (const TableKey& key : named) kept.push_back(rows_.Find(key));
  std::sort(kept.begin(), kept.end());
  std::vector<std::tuple<uint64_t, uint64_t, uint32_t>> rows;
  rows_.ForEach([&](uint32_t row, uint64_t mixed) {
    if (!std::binary_search(kept.begin(), kept.end(), row))
      rows.emplace_back(rank(rows_.head(row)), mixed, row);
  });
  const int64_t over = std::min<int64_t>(static_cast<int64_t>(rows.size()),
                                         std::max<int64_t>(1, rows_.slabs().rows() / 20));
  std::nth_element(rows.begin(), rows.begin() + over, rows.end());
  for (int64_t i = 0; i < over; ++i) Remove(std::get<2>(rows[static_cast<size_t>(i)]));
  return over;
}

TableCounts TableSegment::Evict(int64_t first, int64_t end, uint32_t now) {
  TableCounts counts;
  const auto is_within = [&](uint64_t mixed) {
    return BucketOf(mixed) >= first && BucketOf(mixed) < end;
  };
  const auto remove_if = [&](const auto& is_over) {
    rows_.ForEach([&](uint32_t row, uint64_t mixed) {
      if (!is_within(mixed) || !is_over(row)) return;
      Remove(row);
      ++counts.evicted;
    });
  };
  const Eviction& eviction = format_.options.eviction;
  if (const auto* below = std::get_if<EvictBelowNorm>(&eviction)) {
    const double least = static_cast<double>(below->norm) * below->norm;
    remove_if([&](uint32_t row) { return NormSquared(values(row), format_.width) < least; });
  }
  if (const auto* unused = std::get_if<EvictUnusedFor>(&eviction)) {
    const int64_t minutes = absl::ToInt64Minutes(unused->duration);
    const auto is_old = [&](const RowHead& head) {
      return int64_t{now} - int64_t{head.tick} >= minutes;
    };
    remove_if([&](uint32_t row) { return is_old(rows_.head(row)); });
    counters_.ForEach([&](uint32_t counter, uint64_t mixed) {
      if (is_within(mixed) && is_old(counters_.head(counter))) counters_.Remove(counter);
    });
  }
  return counts;
}

int64_t TableSegment::bytes() const {
  return rows_.bytes() + counters_.bytes() + static_cast<int64_t>(filter_.size());
}

// ---- checkpoints --------------------------------------------------------------------------------

bool TableSegment::Restore(const TableKey& key, const RowHead& head, absl::Span<const float> values,
                           absl::Span<const absl::Span<const char>> slots) {
  const uint32_t row = rows_.Add(key);
  if (row == kNoRow) return false;
  limit_.TakeAnyway();
  rows_.head(row) = {key.key, head.count, Kept(head.tick)};
  std::copy(values.begin(), values.end(), this->values(row));
  for (size_t i = 0; i < slots.size(); ++i)
    std::copy(slots[i].begin(), slots[i].end(), rows_.at(row) + format_.slots_at[i]);
  return true;
}

bool TableSegment::RestoreWaiting(const TableKey& key, const RowHead& head) {
  const uint32_t row = counters_.Add(key);
  if (row == kNoRow) return false;
  counters_.head(row) = {key.key, head.count, Kept(head.tick)};
  return true;
}

}  // namespace divvy
