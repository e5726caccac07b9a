#include "coordinator/core/eviction_schedule.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <variant>

#include "variables/table_keys.h"

namespace divvy {
namespace {

// How long a pass takes. Nullopt: rows go in the writes that need their room, or never.
std::optional<absl::Duration> TimeOfPass(const TableOptions& options) {
  if (const auto* unused = std::get_if<EvictUnusedFor>(&options.eviction))
    return std::clamp(unused->duration / 4, absl::Minutes(1), absl::Hours(1));
  if (std::holds_alternative<EvictBelowNorm>(options.eviction)) return absl::Hours(1);
  return std::nullopt;
}

// The buckets of each write, if there is about one in a second (CoordinatorCore::Tick).
int64_t BucketsOfWrite(absl::Duration pass) {
  int64_t buckets = 32;
  while (buckets < EvictionSchedule::kBuckets && pass * buckets < absl::Seconds(kTableBuckets))
    buckets *= 2;
  return buckets;
}

EvictionSchedule::CommitPlan WriteFor(const VariableLayout& table, int64_t begin, int64_t end,
                                      uint32_t tick) {
  EvictionSchedule::CommitPlan plan;
  for (int part = table.PartOf(begin); part < table.num_shards() && table.offsets[part] < end;
       ++part) {
    CommitPart evict;
    evict.shard = {table.id, 0, static_cast<uint16_t>(part)};
    evict.op = WriteOp::kEvict;
    evict.rows = Tensor::Vector<int64_t>({int64_t{tick}, std::max(begin, table.offsets[part]),
                                          std::min(end, table.offsets[part + 1])});
    plan[table.ps[part]].push_back(std::move(evict));
  }
  return plan;
}

// Where the passes begin that begin in this epoch. The factor is the golden section of 2^64, so
// that the places of neighbouring epochs, few or many, are spread evenly over the buckets.
int64_t FirstBucket(Epoch epoch) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15;
  static_assert(kTableBuckets == 1 << 16);
  return static_cast<int64_t>((epoch.value() * kFactor) >> 48);
}

}  // namespace

void EvictionSchedule::LookAt(const Layout& layout, absl::Duration now, Epoch epoch) {
  if (layout.hash() == layout_hash_) return;
  layout_hash_ = layout.hash();
  const std::vector<Pass> before = std::exchange(passes_, {});
  for (const auto& [id, variable] : layout.variables()) {
    if (!variable.spec.table) continue;
    const std::optional<absl::Duration> time = TimeOfPass(*variable.spec.table);
    if (!time) continue;
    const int64_t buckets = BucketsOfWrite(*time);
    const absl::Duration between = *time * buckets / kTableBuckets;
    const auto known = std::find_if(before.begin(), before.end(),
                                    [id = id](const Pass& pass) { return pass.table == id; });
    passes_.push_back(known != before.end()
                          ? *known
                          : Pass{id, buckets, between, now, FirstBucket(epoch)});
    passes_.back().buckets = buckets;
    passes_.back().between = between;
  }
}

EvictionSchedule::CommitPlan EvictionSchedule::Next(const Layout& layout, uint32_t tick,
                                                    absl::Duration now, Epoch epoch) {
  LookAt(layout, now, epoch);
  const auto due = std::min_element(passes_.begin(), passes_.end(),
                                    [](const Pass& a, const Pass& b) { return a.due < b.due; });
  if (due == passes_.end() || due->due > now) return {};
  // A write that comes late, up to the next one, is made up for. Beyond that the pass takes longer.
  due->due = std::max(due->due + due->between, now + due->between / 8);
  const int64_t begin = due->bucket, end = std::min(begin + due->buckets, kTableBuckets);
  due->bucket = end == kTableBuckets ? 0 : end;
  return WriteFor(*layout.Find(due->table), begin, end, tick);
}

}  // namespace divvy
