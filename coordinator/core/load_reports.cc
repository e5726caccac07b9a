#include "coordinator/core/load_reports.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace divvy {
namespace {

// The part's share of the bytes of the variable and its slots. Of a table, what the server told.
int64_t BytesOf(const VariableLayout& variable, int part) {
  if (variable.rows() == 0) return 0;
  const auto first = static_cast<size_t>(part);
  const auto rows = static_cast<double>(variable.offsets[first + 1] - variable.offsets[first]);
  const auto bytes = static_cast<double>(variable.value_bytes() + variable.slot_bytes());
  return static_cast<int64_t>(bytes * rows / static_cast<double>(variable.rows()));
}

// Null: the shard does not lie on `ps` by the layout.
const VariableLayout* VariableOn(const Layout& layout, int ps, ShardKey shard) {
  const VariableLayout* const variable = layout.Find(shard.variable);
  const bool is_there = variable != nullptr && shard.slot == 0 &&
                        shard.part < variable->num_shards() && variable->ps[shard.part] == ps;
  return is_there ? variable : nullptr;
}

// What a server tells is not trusted to be possible: a sum of such numbers does not overflow.
constexpr int64_t kMostBytes = int64_t{1} << 50;

}  // namespace

LoadReport LoadNow(const Layout& layout, const ServerSet& servers) {
  LoadReport report;
  report.is_known = true;
  for (const auto& [id, variable] : layout.variables()) {
    for (int part = 0; part < variable.num_shards(); ++part)
      report.shards[{id, 0, static_cast<uint16_t>(part)}].bytes = BytesOf(variable, part);
  }
  for (const auto& ps : servers) {
    report.is_known = report.is_known && ps.loads.are_known();
    for (const auto& [key, rates] : ps.loads.bytes_per_second()) {
      if (VariableOn(layout, ps.index, key) != nullptr) report.shards[key].bytes_per_second = rates;
    }
    for (const SyncReply::Table& told : ps.tables) {
      const VariableLayout* const table = VariableOn(layout, ps.index, told.shard);
      if (table != nullptr && table->spec.table)
        report.shards[told.shard].bytes = std::min(told.stats.bytes, kMostBytes);
    }
    report.room.push_back(ps.memory_limit_bytes == 0 ? std::numeric_limits<int64_t>::max()
                                                     : ps.memory_limit_bytes / 10 * 9);
  }
  return report;
}

std::vector<std::optional<BusiestVariable>> BusiestVariables(const Layout& layout,
                                                             const ServerSet& servers) {
  std::vector<std::optional<BusiestVariable>> all;
  for (const auto& ps : servers) {
    std::map<const VariableLayout*, double> loads;
    double sum = 0;
    for (const auto& [key, rates] : ps.loads.bytes_per_second()) {
      const VariableLayout* const variable = VariableOn(layout, ps.index, key);
      if (variable == nullptr) continue;
      const double load = std::accumulate(rates.begin(), rates.end(), 0.0);
      loads[variable] += load;
      sum += load;
    }
    all.emplace_back();
    if (sum <= 0) continue;
    const auto most =
        std::max_element(loads.begin(), loads.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    all.back() = BusiestVariable{most->first->spec.name, most->second / sum};
  }
  return all;
}

}  // namespace divvy
