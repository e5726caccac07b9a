// The dynamic table: what steps do to it, and what its parameter servers must hold.
#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/sim/cluster.h"
#include "variables/dynamic_table.h"
#include "variables/table_keys.h"

namespace divvy::sim {

// Without one of the two evictions, the table's own removes nothing, but its writes are entries of
// the history.
VariableSpec Cluster::TableSpec() const {
  DynamicTableOptions options;
  options.width = kTableWidth;
  options.initializer = Zeros();
  options.admission = AdmitAfter{config_.admit_after, config_.admit_by_filter ? 1 << 20 : 0};
  options.eviction = EvictUnusedFor{absl::Hours(24 * 365)};
  if (config_.evict_unused) options.eviction = EvictUnusedFor{absl::Minutes(config_.evict_unused)};
  if (config_.evict_below_norm) options.eviction = EvictBelowNorm{5};
  if (config_.table_gradients) options.optimizer = Momentum{1.0, 1};
  return DynamicTable(kTableName, std::move(options));
}

TableModel Cluster::NewTable() const {
  return TableModel(*TableSpec().table,
                    config_.table_gradients ? TableWrite::kGradient : TableWrite::kAdd);
}

std::vector<int64_t> Cluster::TableKeysOf(int64_t tag) const {
  std::vector<int64_t> keys;
  if (!config_.table) return keys;
  Random random(MixSeeds(MixSeeds(config_.seed, static_cast<uint64_t>(tag)), 4002));
  for (const int64_t key : kTableKeys) {
    // A row that many steps name is neither old nor small when an eviction comes.
    const double chance = config_.Evicts() && key % 2 == 0 ? 0.05 : 0.3;
    if (key != kTableKeys[0] && random.Chance(chance))
      keys.push_back(key);  // the first one has no row
  }
  return keys;
}

void Cluster::UseTable(int64_t tag, bool writes, std::vector<script::Move>& moves) const {
  if (tag % 3 == 0)
    moves.push_back(script::Read{{{kTableName, Tensor::Vector<int64_t>(kTableKeys)}}});
  const std::vector<int64_t> keys = TableKeysOf(tag);
  if (!writes || keys.empty()) return;
  const Shape shape{static_cast<int64_t>(keys.size()), kTableWidth};
  const std::vector<float> elements(static_cast<size_t>(shape.num_elements()),
                                    config_.table_gradients ? -1.0f : 1.0f);
  StagedWrite write;
  write.variable = kTableName;
  write.op = config_.table_gradients ? WriteOp::kGradient : WriteOp::kScatterAdd;
  write.value = *Tensor::Copy<float>(shape, elements);
  write.ids = Tensor::Vector<int64_t>(absl::MakeConstSpan(keys));
  moves.push_back(script::Stage{std::move(write)});
}

// Every attempt of a step, and every replay, dates rows alike.
uint32_t Cluster::TickOf(const StepCall& call, Epoch epoch) {
  const auto dispatched = ticks_of_steps_.find({epoch, call.step});
  if (dispatched == ticks_of_steps_.end()) {
    Violation("X22", absl::StrCat("step ", call.step.value(), " runs without a dispatch"));
    return 0;
  }
  const uint32_t tick = dispatched->second;
  const std::optional<Ran> before = RanAs(call.step);
  const bool may_be_another = lost_store_ || had_zombie_;
  if (before && before->tick != tick && !may_be_another)
    Violation("X22", absl::StrCat("step ", call.step.value(), " is of minute ", tick,
                                  ", and was of minute ", before->tick));
  return tick;
}

// ---- evictions ----

// An eviction comes after all steps that had finished when it was sent, and before all others. The
// program has been told of those by then.
void Cluster::OnEviction(const CommitRequest& request) {
  Ran& ran = ran_[request.fence.job][{request.entry, request.fence.epoch}];
  for (const CommitPart& part : request.parts) {
    const absl::Span<const int64_t> rows = *part.rows->values<int64_t>();
    const Eviction eviction{static_cast<uint32_t>(rows[0]), rows[1], rows[2]};
    if (!ran.evictions.insert(eviction).second) continue;
    const bool is_of_the_program = request.fence.coordinator == chief_->incarnation && !chief_down_;
    if (is_of_the_program) Evict(request.entry, eviction);
  }
}

// Does nothing for a part of an eviction that the model has. A replay brings it again.
void Cluster::Evict(EntryId id, const Eviction& eviction) {
  std::set<Eviction>& known = model_.evictions[id];
  if (known.empty()) model_.undecided = {id, model_.table};
  if (!known.insert(eviction).second) return;
  ++table_changes_;
  const int64_t evicted = model_.table.Evict(eviction.now, eviction.first, eviction.end);
  result_.rows_evicted += evicted;
  if (evicted > 0) Trace(absl::StrCat("id ", id.value(), " evicts ", evicted, " rows"));
}

void Cluster::SettleEviction(const CoordinatorCore::Inspection& truth) {
  if (model_.undecided && truth.finished.count(model_.undecided->eviction) > 0)
    model_.undecided.reset();
}

// A coordinator adopts what the servers hold. They have an eviction that was under way on all of
// them or on none.
void Cluster::TakeBackEviction(const std::map<EntryId, std::set<int>>& applied) {
  if (!model_.undecided || applied.count(model_.undecided->eviction) > 0) return;
  model_.table = model_.undecided->before;
  model_.evictions.erase(model_.undecided->eviction);
  model_.undecided.reset();
}

// ---- checks ----

// Reads that an eviction has met are not judged: they may be of before it or after it.
void Cluster::CheckTable(const Tensor& values) {
  const auto read = *values.values<float>();
  for (size_t i = 0; i < read.size(); ++i) {
    const int64_t key = kTableKeys[i / kTableWidth];
    if (const float wanted = model_.table.ValueOf(key); read[i] != wanted)
      Violation("X20", absl::StrCat("key ", key, " of the table is ", read[i], " and not ", wanted,
                                    ", though the program saw so many steps finish that name it"));
  }
}

// REQUIRES: nothing is in flight, and every server of the coordinator's view serves.
void Cluster::CheckTableRows(int serving) {
  std::vector<TableImage> parts;
  for (int i = 0; i < serving; ++i) {
    for (auto& [key, shard] : ps_[i]->ps->Inspect().shards) {
      if (shard.name == kTableName && shard.rows) parts.push_back(*shard.rows);
    }
  }
  for (const TableImage& part : parts) {
    if (const std::string wrong = UnevenColumns(part); !wrong.empty())
      return Violation("X24", wrong);
  }
  result_.rows_judged += static_cast<int64_t>(model_.table.rows().size());
  // A filter does not know when it was asked. So the minute of a row depends on which of two steps
  // that ran side by side came first.
  const auto minutes =
      config_.admit_by_filter ? TableModel::Minutes::kIgnored : TableModel::Minutes::kCompared;
  if (const std::string wrong = model_.table.Contradiction(parts, minutes); !wrong.empty())
    Violation("X22", wrong);
}

}  // namespace divvy::sim
