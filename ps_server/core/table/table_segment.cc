#include "ps_server/core/table/table_segment.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <variant>

#include "absl/container/fixed_array.h"
#include "base/random.h"
#include "initializers/key_row.h"
#include "kernels/elements.h"
#include "kernels/halves.h"

namespace divvy {
namespace {

constexpr uint32_t kNoRow = KeyedRows::kNoRow;

int64_t SlotBytes(const SlotSpec& slot, int64_t width) {
  return slot.kind == SlotSpec::Kind::kValues ? width * 4 : 4;
}

int64_t Aligned(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
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

// In four lanes, so that additions do not wait for each other.
double NormSquared(const float* values, int64_t width) {
  constexpr int64_t kLanes = 4;
  double sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= width; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane)
      sums[lane] += static_cast<double>(values[i + lane]) * values[i + lane];
  }
  for (; i < width; ++i) sums[0] += static_cast<double>(values[i]) * values[i];
  return (sums[0] + sums[1]) + (sums[2] + sums[3]);
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

// How many of the writes before the current one name the key.
int64_t TimesNamedBefore(const NamedKeys& named, const TableKey& key) {
  const auto is_before = [](const TableKey& a, const TableKey& b) {
    return TableOrder(a.mixed) < TableOrder(b.mixed);
  };
  int64_t times = 0;
  for (const absl::Span<const TableKey> keys : named.writes.first(named.current))
    times += std::binary_search(keys.begin(), keys.end(), key, is_before) ? 1 : 0;
  return times;
}

// Room for the values of a row that stores halves.
using HalvesScratch = absl::FixedArray<float, 256>;
size_t ScratchElements(const TableFormat& format) {
  return format.dtype == DType::kFloat32 ? 0 : static_cast<size_t>(format.width);
}

}  // namespace

// ---- the format of a row ------------------------------------------------------------------------

bool CountsExactly(const TableOptions& options) {
  const auto* const after = std::get_if<AdmitAfter>(&options.admission);
  return after != nullptr && after->counter_bytes == 0;
}

int64_t FilterBytesOf(const TableOptions& options) {
  const auto* const after = std::get_if<AdmitAfter>(&options.admission);
  return after == nullptr ? 0 : after->counter_bytes / kTableBuckets;
}

TableFormat::TableFormat(InitializerContext context, Initializer initializer, TableOptions options,
                         int64_t width, std::vector<SlotSpec> slots, DType dtype)
    : context(std::move(context)),
      initializer(std::move(initializer)),
      options(std::move(options)),
      width(width),
      dtype(dtype),
      value_bytes(width * DTypeSize(dtype)),
      slots(std::move(slots)),
      slots_at(PlacesOf()),
      row_bytes(Aligned(slots_at.back(), alignof(RowHead))),
      admission_seed(MixSeeds(MixSeeds(this->context.job_seed, HashText(this->context.name)),
                              /*admission*/ 1)),
      rounding_seed(MixSeeds(MixSeeds(this->context.job_seed, HashText(this->context.name)),
                             /*rounding*/ 2)) {}

std::vector<int64_t> TableFormat::PlacesOf() const {
  std::vector<int64_t> places;
  int64_t at = Aligned(kValuesAt + value_bytes, alignof(float));
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
      options_(std::shared_ptr<const void>(), &format.options),
      first_bucket_(first_bucket),
      end_bucket_(end_bucket),
      limit_(limit),
      rows_(format.row_bytes, first_bucket, end_bucket, limit.memory()),
      counters_(sizeof(RowHead), first_bucket, end_bucket, limit.memory()) {}

TableSegment::~TableSegment() { limit_.memory()->GiveBack(static_cast<int64_t>(filter_.size())); }

const char* TableSegment::Find(const TableKey& key) const {
  const uint32_t row = rows_.Find(key);
  return row == kNoRow ? nullptr : rows_.at(row);
}

// The rows of a large table are in no cache. So the entries of several keys are loaded side by
// side, and then their rows.
void TableSegment::Prefetch(absl::Span<const TableKey> keys) const {
  for (const TableKey& key : keys) rows_.index().Prefetch(key.mixed);
  for (const TableKey& key : keys) {
    if (const uint32_t row = rows_.index().Guess(key.mixed); row != kNoRow)
      rows_.Prefetch(row, format_.row_bytes);
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
        format_.ToFloats(values(row), to);
      } else if (options_->absent == TableOptions::Absent::kZeros) {
        std::fill_n(to, width, 0.0f);
      } else {
        FillInitial(group[i].key, to);
      }
    }
  }
}

// The values of a new row, as they would be read from it.
void TableSegment::FillInitial(int64_t key, float* to) const {
  FillKeyRow(format_.initializer, format_.context, key,
             absl::MakeSpan(to, static_cast<size_t>(format_.width)));
  if (format_.dtype == DType::kFloat32) return;
  absl::FixedArray<char, 512> stored(static_cast<size_t>(format_.value_bytes));
  format_.ToStored(to, stored.data());
  format_.ToFloats(stored.data(), to);
}

void TableSegment::ReadRecords(absl::Span<const TableKey> keys, int64_t* out) const {
  for (size_t begin = 0; begin < keys.size(); begin += kTogether) {
    const absl::Span<const TableKey> group = keys.subspan(begin, kTogether);
    Prefetch(group);
    for (const TableKey& key : group) {
      const uint32_t row = rows_.Find(key);
      *out++ = row == kNoRow ? -1 : int64_t{rows_.head(row).count};
      *out++ = row == kNoRow ? 0 : int64_t{rows_.head(row).tick};
    }
  }
}

// ---- admission ----------------------------------------------------------------------------------

// The counter of a key that is admitted stays until its row is made.
TableSegment::Verdict TableSegment::AdmitsByCounter(const TableKey& key, int64_t steps,
                                                    uint32_t tick, RowHead& before) {
  uint32_t counter = counters_.Find(key);
  if (counter != kNoRow) before = counters_.head(counter);
  if (int64_t{before.count} + 1 >= steps) return Verdict::kAdmitted;
  if (counter == kNoRow) counter = counters_.Add(key);
  if (counter == kNoRow) return Verdict::kNoMemory;
  RowHead& head = counters_.head(counter);
  head.count = before.count + 1;
  head.tick = std::max(head.tick, Kept(tick));
  return Verdict::kWaits;
}

bool TableSegment::MakeFilter(int64_t bytes_of_bucket) {
  const int64_t bytes = (end_bucket_ - first_bucket_) * bytes_of_bucket;
  if (!limit_.memory()->Take(bytes)) return false;
  filter_.resize(static_cast<size_t>(bytes));
  return true;
}

bool TableSegment::RestoreFilter(std::vector<uint8_t> filter) {
  if (filter.empty()) return true;
  if (!limit_.memory()->Take(static_cast<int64_t>(filter.size()))) return false;
  filter_ = std::move(filter);
  return true;
}

// Counters are of buckets, so what they say does not depend on how the table is cut.
TableSegment::Verdict TableSegment::AdmitsByFilter(const TableKey& key, const AdmitAfter& rule,
                                                   RowHead& before) {
  const int64_t size = FilterBytesOf(*options_);
  if (frozen_ != nullptr && frozen_->WantsFilter()) frozen_->KeepFilter(filter_);
  if (filter_.empty() && !MakeFilter(size)) return Verdict::kNoMemory;
  uint8_t* const counters = filter_.data() + (BucketOf(key.mixed) - first_bucket_) * size;
  const std::array<int64_t, kCountersOfKey> places = CountersOf(key.mixed, size);
  uint8_t least = std::numeric_limits<uint8_t>::max();
  for (const int64_t place : places) least = std::min(least, counters[place]);
  before.count = least;
  if (int64_t{least} + 1 >= rule.steps) return Verdict::kAdmitted;
  // Only the lowest ones count, so that colliding keys disturb each other less.
  for (const int64_t place : places) {
    if (counters[place] == least) counters[place] = static_cast<uint8_t>(least + 1);
  }
  return Verdict::kWaits;
}

bool TableSegment::AdmitsByChance(const TableKey& key, double probability, uint64_t entry) const {
  const uint32_t drawn =
      Philox4x32(format_.admission_seed, static_cast<uint64_t>(key.key), entry)[0];
  return (drawn + 0.5) * 0x1.0p-32 < probability;
}

TableSegment::Verdict TableSegment::Admits(const TableKey& key, const TableStamp& stamp,
                                           RowHead& before) {
  const Admission& admission = options_->admission;
  if (const auto* after = std::get_if<AdmitAfter>(&admission)) {
    return after->counter_bytes > 0 ? AdmitsByFilter(key, *after, before)
                                    : AdmitsByCounter(key, after->steps, stamp.tick, before);
  }
  if (const auto* chance = std::get_if<AdmitWithProbability>(&admission))
    return AdmitsByChance(key, chance->probability, stamp.entry) ? Verdict::kAdmitted
                                                                 : Verdict::kWaits;
  return Verdict::kAdmitted;
}

// ---- writing ------------------------------------------------------------------------------------

uint32_t TableSegment::Make(const TableKey& key) {
  const uint32_t row = rows_.Add(key);
  if (row == kNoRow) return kNoRow;
  if (format_.dtype == DType::kFloat32) {
    FillInitial(key.key, reinterpret_cast<float*>(values(row)));
  } else {
    HalvesScratch initial(ScratchElements(format_));
    FillInitial(key.key, initial.data());
    format_.ToStored(initial.data(), values(row));
  }
  for (size_t i = 0; i < format_.slots.size(); ++i)
    FillSlot(format_.slots[i], format_.width, rows_.at(row) + format_.slots_at[i]);
  return row;
}

void TableSegment::Keep(const TableKey& key) {
  if (frozen_ == nullptr || !frozen_->Wants(key.mixed)) return;
  const uint32_t counter = counters_.Find(key);
  frozen_->Keep(key.mixed, Find(key), format_.row_bytes,
                counter == kNoRow ? nullptr : &counters_.head(counter));
}

void TableSegment::Remove(uint32_t row) {
  const int64_t key = rows_.head(row).key;
  Keep({key, MixKey(key)});
  rows_.Remove(row);
  limit_.GiveBack();
}

bool TableSegment::MakeRoom(const TableKey& key, const NamedKeys& named, TableCounts& counts) {
  if (limit_.Take()) return true;
  // Where the part is far above its limit, evicting from this segment makes no room.
  if (counts.evicted > 0 && counts.refused > 0) return false;
  const Eviction& eviction = options_->eviction;
  const Buckets buckets = NeighboursOf(BucketOf(key.mixed));
  if (std::holds_alternative<EvictLeastUsed>(eviction))
    counts.evicted += RemoveLeast(
        buckets, named, [](const RowHead& head) { return Ranked(head.count, head.tick); });
  if (std::holds_alternative<EvictLeastRecent>(eviction))
    counts.evicted += RemoveLeast(
        buckets, named, [](const RowHead& head) { return Ranked(head.tick, head.count); });
  return limit_.Take();
}

uint32_t TableSegment::RowToWrite(const TableKey& key, const NamedKeys& named, Result result,
                                  const TableStamp& stamp, TableCounts& counts) {
  RowHead before;
  const Verdict verdict =
      result == Result::kAssignedToAnyKey ? Verdict::kAdmitted : Admits(key, stamp, before);
  if (verdict != Verdict::kAdmitted) {
    ++(verdict == Verdict::kWaits ? counts.waiting : counts.refused);
    return kNoRow;
  }
  const bool has_room = MakeRoom(key, named, counts);
  const uint32_t row = has_room ? Make(key) : kNoRow;
  const uint32_t counter = counters_.Find(key);
  if (row == kNoRow) {
    if (has_room) limit_.GiveBack();
    ++counts.refused;
    // The step has named the key all the same.
    if (counter == kNoRow) return kNoRow;
    RowHead& waiting = counters_.head(counter);
    waiting.count = Increased(waiting.count);
    waiting.tick = std::max(waiting.tick, Kept(stamp.tick));
    return kNoRow;
  }
  ++counts.made;
  rows_.head(row).count = before.count;
  rows_.head(row).tick = before.tick;
  if (counter != kNoRow) counters_.Remove(counter);
  return row;
}

void TableSegment::Store(uint32_t row, absl::Span<const float> halves, Result result,
                         uint64_t entry, int64_t write) const {
  if (result != Result::kComputed) return format_.ToStored(halves.data(), values(row));
  const RoundingDraw draw{MixSeeds(format_.rounding_seed, entry),
                          static_cast<uint64_t>(rows_.head(row).key),
                          static_cast<uint64_t>(write) << 32};
  ToHalvesAtRandom(format_.dtype, halves.data(), format_.width, draw, values(row));
}

template <typename Change>
TableCounts TableSegment::Write(absl::Span<const TableKey> keys, const TableStamp& stamp,
                                const NamedKeys& several, Result result, const Change& change) {
  const NamedKeys named =
      several.writes.empty() ? NamedKeys{absl::MakeConstSpan(&keys, 1)} : several;
  TableCounts counts;
  HalvesScratch halves(ScratchElements(format_));
  // A warm start brings the rows of an empty segment, bucket by bucket.
  if (result == Result::kAssignedToAnyKey && rows_.index().size() < keys.size())
    rows_.Reserve(keys.size());
  for (size_t begin = 0; begin < keys.size(); begin += kTogether) {
    const absl::Span<const TableKey> group = keys.subspan(begin, kTogether);
    Prefetch(group);
    for (size_t i = 0; i < group.size(); ++i) {
      const int64_t before = TimesNamedBefore(named, group[i]);
      Keep(group[i]);
      uint32_t row = rows_.Find(group[i]);
      if (row == kNoRow && before == 0) row = RowToWrite(group[i], named, result, stamp, counts);
      if (row == kNoRow) continue;
      RowHead& head = rows_.head(row);
      if (before == 0) head.count = Increased(head.count);
      head.tick = std::max(head.tick, Kept(stamp.tick));
      change(BlockOf(row, absl::MakeSpan(halves)), begin + i);
      if (!halves.empty()) Store(row, halves, result, stamp.entry, before);
    }
  }
  return counts;
}

ParameterBlock TableSegment::BlockOf(uint32_t row, absl::Span<float> halves) const {
  const auto width = static_cast<size_t>(format_.width);
  ParameterBlock block;
  block.values = absl::MakeSpan(reinterpret_cast<float*>(values(row)), width);
  if (!halves.empty()) {
    format_.ToFloats(values(row), halves.data());
    block.values = halves;
  }
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
                                         const OptimizerStep& step, const TableStamp& stamp,
                                         const NamedKeys& named) {
  const auto width = static_cast<size_t>(format_.width);
  return Write(keys, stamp, named, Result::kComputed, [&](const ParameterBlock& block, size_t i) {
    ApplyDense(step, block, absl::MakeConstSpan(gradients + i * width, width));
  });
}

TableCounts TableSegment::ApplyValues(absl::Span<const TableKey> keys, const float* values,
                                      WriteOp op, const TableStamp& stamp, const NamedKeys& named) {
  const Result result = op == WriteOp::kAssign          ? Result::kAssignedToAnyKey
                        : op == WriteOp::kScatterUpdate ? Result::kAssigned
                                                        : Result::kComputed;
  return Write(keys, stamp, named, result, [&](const ParameterBlock& block, size_t i) {
    ApplyElements(op, DType::kFloat32, block.values.data(),
                  values + i * static_cast<size_t>(format_.width), format_.width);
  });
}

TableCounts TableSegment::Touch(absl::Span<const TableKey> keys, const TableStamp& stamp) {
  return Write(keys, stamp, {}, Result::kComputed, [](const ParameterBlock&, size_t) {});
}

void TableSegment::SetCounts(absl::Span<const TableKey> keys, absl::Span<const int64_t> counts) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint32_t row = rows_.Find(keys[i]);
    if (row == kNoRow) continue;
    Keep(keys[i]);
    rows_.head(row).count = static_cast<uint32_t>(std::clamp<int64_t>(counts[i], 0, kMost));
  }
}

// ---- eviction -----------------------------------------------------------------------------------

int64_t TableSegment::BucketsAtATime() const {
  const int64_t buckets = end_bucket_ - first_bucket_,
                all = std::max<int64_t>(1, rows() + waiting());
  return std::clamp<int64_t>(buckets * kRowsAtATime / all, 1, buckets);
}

TableSegment::Buckets TableSegment::NeighboursOf(int64_t bucket) const {
  const int64_t many = BucketsAtATime(),
                first = first_bucket_ + (bucket - first_bucket_) / many * many;
  return Within(first, first + many);
}

TableSegment::Buckets TableSegment::Within(int64_t first, int64_t end) const {
  return {std::max(first, first_bucket_), std::min(end, end_bucket_)};
}

// Removes 5 % of the rows of the buckets, at least one. Of rows with the same rank, those with the
// smaller mixed key go.
int64_t TableSegment::RemoveLeast(const Buckets& buckets, const NamedKeys& named,
                                  absl::FunctionRef<uint64_t(const RowHead&)> rank) {
  std::vector<uint32_t> kept;
  for (const absl::Span<const TableKey> keys : named.writes) {
    for (const TableKey& key : KeysWithin(keys, buckets.first, buckets.end))
      kept.push_back(rows_.Find(key));
  }
  std::sort(kept.begin(), kept.end());
  int64_t all = 0;
  std::vector<std::tuple<uint64_t, uint64_t, uint32_t>> rows;
  rows_.ForEach(buckets.first, buckets.end, sizeof(RowHead), [&](uint32_t row) {
    ++all;
    const RowHead& head = rows_.head(row);
    if (!std::binary_search(kept.begin(), kept.end(), row))
      rows.emplace_back(rank(head), MixKey(head.key), row);
  });
  const int64_t over =
      std::min<int64_t>(static_cast<int64_t>(rows.size()), std::max<int64_t>(1, all / 20));
  std::nth_element(rows.begin(), rows.begin() + over, rows.end());
  for (int64_t i = 0; i < over; ++i) Remove(std::get<2>(rows[static_cast<size_t>(i)]));
  return over;
}

TableCounts TableSegment::Evict(int64_t first, int64_t end, uint32_t now) {
  TableCounts counts;
  const Buckets buckets = Within(first, end);
  const auto remove_if = [&](int64_t bytes, const auto& is_over) {
    rows_.ForEach(buckets.first, buckets.end, bytes, [&](uint32_t row) {
      if (!is_over(row)) return;
      Remove(row);
      ++counts.evicted;
    });
  };
  const Eviction& eviction = options_->eviction;
  if (const auto* below = std::get_if<EvictBelowNorm>(&eviction)) {
    const double least = static_cast<double>(below->norm) * below->norm;
    HalvesScratch halves(ScratchElements(format_));
    remove_if(TableFormat::kValuesAt + format_.value_bytes, [&](uint32_t row) {
      const auto* floats = reinterpret_cast<const float*>(values(row));
      if (!halves.empty()) {
        format_.ToFloats(values(row), halves.data());
        floats = halves.data();
      }
      return NormSquared(floats, format_.width) < least;
    });
  }
  if (const auto* unused = std::get_if<EvictUnusedFor>(&eviction)) {
    const int64_t minutes = absl::ToInt64Minutes(unused->duration);
    const auto is_old = [&](const RowHead& head) {
      return int64_t{now} - int64_t{head.tick} >= minutes;
    };
    remove_if(sizeof(RowHead), [&](uint32_t row) { return is_old(rows_.head(row)); });
    counters_.ForEach(buckets.first, buckets.end, sizeof(RowHead), [&](uint32_t counter) {
      const RowHead& head = counters_.head(counter);
      if (!is_old(head)) return;
      Keep({head.key, MixKey(head.key)});
      counters_.Remove(counter);
    });
  }
  return counts;
}

int64_t TableSegment::CountOf(int64_t first, int64_t end) const {
  const Buckets buckets = Within(first, end);
  return rows_.index().CountOf(buckets.first, buckets.end) +
         counters_.index().CountOf(buckets.first, buckets.end);
}

// ---- other options ------------------------------------------------------------------------------

void TableSegment::RemoveCounters() {
  counters_.ForEach(first_bucket_, end_bucket_, sizeof(RowHead), [&](uint32_t counter) {
    const int64_t key = counters_.head(counter).key;
    Keep({key, MixKey(key)});
    counters_.Remove(counter);
  });
}

void TableSegment::RemoveFilter() {
  if (frozen_ != nullptr && frozen_->WantsFilter()) frozen_->KeepFilter(filter_);
  limit_.memory()->GiveBack(static_cast<int64_t>(filter_.size()));
  filter_ = {};
}

void TableSegment::SetOptions(std::shared_ptr<const TableOptions> options) {
  const int64_t filter_bytes = FilterBytesOf(*options_);
  options_ = std::move(options);
  if (!CountsExactly(*options_)) RemoveCounters();
  if (FilterBytesOf(*options_) != filter_bytes) RemoveFilter();
}

int64_t TableSegment::bytes() const {
  return rows_.bytes() + counters_.bytes() + static_cast<int64_t>(filter_.size());
}

// ---- checkpoints --------------------------------------------------------------------------------

bool TableSegment::Restore(const TableKey& key, const RowHead& head, absl::Span<const char> values,
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

SegmentRows TableSegment::Copy() const {
  SegmentRows copy;
  copy.rows.reserve(static_cast<size_t>(rows() * format_.row_bytes));
  rows_.ForEach(first_bucket_, end_bucket_, format_.row_bytes, [&](uint32_t row) {
    copy.rows.insert(copy.rows.end(), rows_.at(row), rows_.at(row) + format_.row_bytes);
  });
  counters_.ForEach(first_bucket_, end_bucket_, sizeof(RowHead),
                    [&](uint32_t counter) { copy.waiting.push_back(counters_.head(counter)); });
  copy.filter = filter_;
  return copy;
}

std::optional<SegmentRows> TableSegment::TakeRows(FrozenSegment& own) {
  if (frozen_ != &own) return std::nullopt;
  const bool is_first = own.taken_end() == 0;
  const int64_t first = is_first ? first_bucket_ : own.taken_end();
  const Buckets buckets = Within(first, first + BucketsAtATime());
  SegmentRows taken;
  if (is_first) taken.filter = own.filter().value_or(filter_);
  const auto row_bytes = static_cast<size_t>(format_.row_bytes);
  taken.rows.reserve(static_cast<size_t>(CountOf(buckets.first, buckets.end)) * row_bytes);
  const auto add = [&](const char* row) {
    taken.rows.insert(taken.rows.end(), row, row + row_bytes);
  };
  rows_.ForEach(buckets.first, buckets.end, format_.row_bytes, [&](uint32_t row) {
    if (!own.Has(MixKey(rows_.head(row).key))) add(rows_.at(row));
  });
  counters_.ForEach(buckets.first, buckets.end, sizeof(RowHead), [&](uint32_t counter) {
    const RowHead& head = counters_.head(counter);
    if (!own.Has(MixKey(head.key))) taken.waiting.push_back(head);
  });
  own.Take(buckets.first, buckets.end, format_.row_bytes, [&](const FrozenSegment::Kept& kept) {
    if (kept.row != nullptr) add(kept.row.get());
    if (kept.waiting) taken.waiting.push_back(*kept.waiting);
  });
  taken.is_lost = own.is_lost();
  taken.is_last = buckets.end == end_bucket_;
  if (!taken.is_last) return taken;
  frozen_ = nullptr;
  own.Clear();
  return taken;
}

bool TableSegment::RestoreWaiting(const TableKey& key, const RowHead& head) {
  const uint32_t row = counters_.Add(key);
  if (row == kNoRow) return false;
  counters_.head(row) = {key.key, head.count, Kept(head.tick)};
  return true;
}

}  // namespace divvy
