#include "worker/core/row_cache.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "variables/transfer_plan.h"

namespace divvy {
namespace {

constexpr uint8_t kMostUses = 3;
constexpr size_t kBlock = 32;
// Slots that are checked for rows that are too old, for each row that finds no room. At this rate
// all slots are checked before an eighth of them has been taken again.
constexpr int kLooksForTooOld = 8;
// Memory of a kept row besides its values: the slot and its entry in `slots_of_`, its node and
// bucket in the index, its share of `seen_`, and the overhead of two allocations.
constexpr int64_t kOverheadBytes = 168;

int64_t CostOf(size_t row_bytes) { return static_cast<int64_t>(row_bytes) + kOverheadBytes; }

MetricsRegistry::Labels LabelsOf(int worker) { return {{"task", absl::StrCat("worker/", worker)}}; }

}  // namespace

RowCacheMetrics::RowCacheMetrics(MetricsRegistry& registry, int worker)
    : hits(registry.GetCounter("divvy_row_cache_hits_total",
                               "Rows that steps asked for and found in the row cache.",
                               LabelsOf(worker))),
      misses(registry.GetCounter("divvy_row_cache_misses_total",
                                 "Rows that steps asked for and had to pull.", LabelsOf(worker))),
      evictions(registry.GetCounter("divvy_row_cache_evictions_total",
                                    "Cached rows that were removed to make room for others.",
                                    LabelsOf(worker))),
      bytes(registry.GetGauge("divvy_row_cache_bytes", "Memory of the cached rows.",
                              LabelsOf(worker))) {}

RowCache::RowCache(int64_t bytes, int staleness, const RowCacheMetrics& metrics)
    : limit_bytes_(bytes), staleness_(static_cast<uint64_t>(staleness)), metrics_(metrics) {}

RowCache::~RowCache() { Clear(); }

size_t RowCache::KeyHash::operator()(const Key& key) const {
  return MixSeeds(key.variable.value(), static_cast<uint64_t>(key.id));
}

void RowCache::BeginStep() {
  MutexLock lock(mu_);
  ++step_;
}

RowCache::Slot* RowCache::FreshSlot(const Key& key) {
  const auto kept = index_.find(key);
  return kept == index_.end() || !Fresh(slots_[kept->second]) ? nullptr : &slots_[kept->second];
}

// Finding a row takes three dependent memory reads. For a block of rows these reads overlap.
void RowCache::CopyBlock(VariableId variable, absl::Span<const int64_t> ids, size_t first,
                         size_t row_bytes, Found& found) {
  const size_t count = std::min(kBlock, ids.size() - first);
  Slot* slots[kBlock];
  for (size_t i = 0; i < count; ++i) index_.prefetch(Key{variable, ids[first + i]});
  for (size_t i = 0; i < count; ++i) slots[i] = FreshSlot({variable, ids[first + i]});
  for (size_t i = 0; i < count; ++i) {
    if (slots[i] != nullptr) __builtin_prefetch(slots[i]->row.data());
  }
  char* const out = found.values.fresh_data<char>() + first * row_bytes;
  for (size_t i = 0; i < count; ++i) {
    if (slots[i] == nullptr) {
      found.missing.push_back(static_cast<int64_t>(first + i));
      continue;
    }
    Slot& slot = *slots[i];
    slot.uses = std::min<uint8_t>(kMostUses, slot.uses + 1);
    stats_.later_hits += slot.step != step_;
    if (row_bytes > 0) std::memcpy(out + i * row_bytes, slot.row.data(), row_bytes);
    const auto [version, is_first] = found.oldest.emplace(slot.part, slot.version);
    version->second = std::min(version->second, slot.version);
  }
}

absl::StatusOr<RowCache::Found> RowCache::Find(const VariableLayout& variable, const Tensor& ids) {
  const auto row_bytes = static_cast<size_t>(RowBytes(variable.spec));
  const absl::Span<const int64_t> wanted = *ids.values<int64_t>();
  Found found;
  ASSIGN_OR_RETURN(found.values,
                   Tensor::Uninitialized(variable.spec.dtype,
                                         variable.spec.shape.WithRowsOf(ids.shape().dims())));
  MutexLock lock(mu_);
  for (size_t first = 0; first < wanted.size(); first += kBlock)
    CopyBlock(variable.id, wanted, first, row_bytes, found);
  const auto misses = static_cast<int64_t>(found.missing.size()),
             hits = static_cast<int64_t>(wanted.size()) - misses;
  stats_.hits += hits, stats_.misses += misses;
  metrics_.hits.Add(static_cast<uint64_t>(hits));
  metrics_.misses.Add(static_cast<uint64_t>(misses));
  return found;
}

void RowCache::Keep(const VariableLayout& variable, const PullPart& asked,
                    const PullPartReply& reply) {
  if (!asked.rows) return;
  const absl::Span<const int64_t> rows = *asked.rows->values<int64_t>();
  const auto row_bytes = static_cast<size_t>(RowBytes(variable.spec));
  if (reply.values.dtype() != variable.spec.dtype ||
      reply.values.size_bytes() != static_cast<int64_t>(rows.size() * row_bytes))
    return;
  const char* const values = reply.values.data_as<char>();
  MutexLock lock(mu_);
  if (never_.count(variable.id) > 0) return;
  const int64_t first = variable.offsets[asked.shard.part];
  for (size_t i = 0; i < rows.size(); ++i)
    KeepRow({variable.id, first + rows[i]}, asked.shard.part, reply.version, values + i * row_bytes,
            row_bytes);
}

void RowCache::KeepRow(Key key, uint16_t part, uint64_t version, const char* row,
                       size_t row_bytes) {
  const int64_t cost = CostOf(row_bytes);
  if (cost > limit_bytes_) return;
  const auto kept = index_.find(key);
  // Two pulls of a step may be answered in the other order.
  if (kept != index_.end() && slots_[kept->second].version > version) return;
  if (kept == index_.end() && !HasRoom(cost)) {
    FreeTooOld();
    if (!HasRoom(cost) && !WasSeen(key)) return;
  }
  const size_t place = kept != index_.end() ? size_t{kept->second} : [&]() DIVVY_REQUIRES(mu_) {
    while (!HasRoom(cost)) EvictOne();
    const size_t taken = TakeSlot();
    slots_[taken].key = key;
    slots_[taken].uses = 0;
    index_.emplace(key, static_cast<uint32_t>(taken));
    std::vector<uint32_t>& slots = slots_of_[key.variable];
    slots_[taken].number = static_cast<uint32_t>(slots.size());
    slots.push_back(static_cast<uint32_t>(taken));
    AddBytes(cost);
    return taken;
  }();
  Slot& slot = slots_[place];
  slot.part = part;
  slot.version = version;
  slot.step = step_;
  slot.row.assign(row, row + row_bytes);
}

size_t RowCache::TakeSlot() {
  if (free_.empty()) {
    free_.push_back(slots_.size());
    slots_.emplace_back();
  }
  const size_t slot = free_.back();
  free_.pop_back();
  slots_[slot].taken = true;
  return slot;
}

// Whether the row has found no room recently. Each hash has one place. A row is forgotten when
// another hash takes its place, which costs one more pull. If there are fewer places than slots,
// all hashes are forgotten; that happens once each time that the number of slots has doubled.
bool RowCache::WasSeen(const Key& key) {
  if (seen_.size() < slots_.size()) seen_.assign(2 * slots_.size(), 0);
  const uint64_t hash = KeyHash()(key) | 1;
  uint64_t& place = seen_[(hash >> 32) % seen_.size()];
  const bool before = place == hash;
  place = before ? 0 : hash;
  return before;
}

void RowCache::FreeTooOld() {
  for (int i = 0; i < kLooksForTooOld && !slots_.empty(); ++i) {
    if (++sweep_ >= slots_.size()) sweep_ = 0;
    if (slots_[sweep_].taken && !Fresh(slots_[sweep_])) Free(sweep_);
  }
}

// REQUIRES: something is kept. The hand makes at most kMostUses + 1 rounds.
void RowCache::EvictOne() {
  for (;; ++hand_) {
    if (hand_ >= slots_.size()) hand_ = 0;
    Slot& slot = slots_[hand_];
    if (!slot.taken) continue;
    if (slot.uses == 0) break;
    --slot.uses;
  }
  Free(hand_++);  // the new row is safe for a whole round of the hand
  ++stats_.evictions;
  metrics_.evictions.Add(1);
}

void RowCache::Free(size_t place) {
  Slot& slot = slots_[place];
  index_.erase(slot.key);
  // The last slot of the variable takes this one's place.
  std::vector<uint32_t>& slots = slots_of_[slot.key.variable];
  slots_[slots.back()].number = slot.number;
  slots[slot.number] = slots.back();
  slots.pop_back();
  AddBytes(-CostOf(slot.row.size()));
  slot.taken = false;
  std::vector<char>().swap(slot.row);
  free_.push_back(place);
}

void RowCache::AddBytes(int64_t bytes) {
  stats_.bytes += bytes;
  metrics_.bytes.Add(static_cast<double>(bytes));
}

void RowCache::Drop(VariableId variable, const Tensor& ids) {
  const absl::Span<const int64_t> rows = *ids.values<int64_t>();
  MutexLock lock(mu_);
  for (const int64_t id : rows) {
    const auto kept = index_.find({variable, id});
    if (kept != index_.end()) Free(kept->second);
  }
}

void RowCache::Drop(VariableId variable) {
  MutexLock lock(mu_);
  DropAll(variable);
}

void RowCache::NeverKeep(VariableId variable) {
  MutexLock lock(mu_);
  if (never_.insert(variable).second) DropAll(variable);
}

void RowCache::DropAll(VariableId variable) {
  const auto kept = slots_of_.find(variable);
  while (kept != slots_of_.end() && !kept->second.empty()) Free(kept->second.back());
}

std::shared_ptr<const void> RowCache::Clear() {
  auto cleared = std::make_shared<std::vector<Slot>>();
  MutexLock lock(mu_);
  AddBytes(-stats_.bytes);
  index_.clear();
  slots_of_.clear();
  slots_.swap(*cleared);
  free_.clear();
  seen_.clear();
  hand_ = sweep_ = 0;
  return cleared;
}

RowCacheStats RowCache::stats() const {
  MutexLock lock(mu_);
  return stats_;
}

}  // namespace divvy
