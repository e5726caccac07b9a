#include "coordinator/core/arrangement.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "partitioners/div.h"

namespace divvy {
namespace {

constexpr int kMostPieces = 16;
// Shards without load are placed by their bytes, which count little beside load.
constexpr double kWeightOfBytes = 0.1;

// A variable with its load in some cut.
struct Cut {
  const VariableLayout* variable = nullptr;
  // Another variable lies beside one of its shards.
  bool is_anchor = false;
  std::vector<ShardLoad> shards;
  double heaviest() const {
    double most = 0;
    for (const ShardLoad& shard : shards) most = std::max(most, shard.bytes_per_second);
    return most;
  }
};

struct Servers {
  explicit Servers(int num_ps) : all(static_cast<size_t>(num_ps)) {}
  void Add(int ps, const ShardLoad& shard) {
    all[static_cast<size_t>(ps)].bytes_per_second += shard.bytes_per_second;
    all[static_cast<size_t>(ps)].bytes += shard.bytes;
  }
  double total_load() const {
    return std::accumulate(all.begin(), all.end(), 0.0, [](double sum, const ShardLoad& ps) {
      return sum + ps.bytes_per_second;
    });
  }
  int64_t total_bytes() const {
    return std::accumulate(all.begin(), all.end(), int64_t{0},
                           [](int64_t sum, const ShardLoad& ps) { return sum + ps.bytes; });
  }
  // The load of the busiest, as a multiple of the mean.
  double Imbalance() const {
    const double total = total_load();
    double most = 0;
    for (const ShardLoad& ps : all) most = std::max(most, ps.bytes_per_second);
    return total > 0 ? most * static_cast<double>(all.size()) / total : 1;
  }

  std::vector<ShardLoad> all;
};

// The variable beside whose shard `name` lies at last, and that shard. Itself: beside none.
std::pair<const VariableLayout*, int> AnchorOf(const Layout& layout,
                                               const std::map<std::string, Colocation>& colocated,
                                               const VariableLayout& variable) {
  const VariableLayout* anchor = &variable;
  int shard = 0;
  // A variable lies beside an older one, so this ends.
  for (auto with = colocated.find(anchor->spec.name); with != colocated.end();
       with = colocated.find(anchor->spec.name)) {
    const VariableLayout* const other = layout.Find(with->second.variable);
    if (other == nullptr) break;
    shard = std::min(with->second.shard, other->num_shards() - 1);
    anchor = other;
  }
  return {anchor, shard};
}

ShardLoad LoadOf(const std::map<ShardKey, ShardLoad>& loads, const VariableLayout& variable,
                 int part) {
  const auto load = loads.find(ShardKey{variable.id, 0, static_cast<uint16_t>(part)});
  return load == loads.end() ? ShardLoad() : load->second;
}

// The variables that are placed by themselves, with the load of what lies beside them.
std::vector<Cut> CutsNow(const Layout& layout, const std::map<std::string, Colocation>& colocated,
                         const std::map<ShardKey, ShardLoad>& loads) {
  std::map<VariableId, Cut> cuts;
  for (const auto& [id, variable] : layout.variables()) {
    const auto [anchor, beside] = AnchorOf(layout, colocated, variable);
    Cut& cut = cuts[anchor->id];
    cut.variable = anchor;
    cut.is_anchor = cut.is_anchor || anchor != &variable;
    cut.shards.resize(static_cast<size_t>(anchor->num_shards()));
    for (int part = 0; part < variable.num_shards(); ++part) {
      const ShardLoad load = LoadOf(loads, variable, part);
      ShardLoad& shard = cut.shards[static_cast<size_t>(anchor == &variable ? part : beside)];
      shard.bytes_per_second += load.bytes_per_second;
      shard.bytes += load.bytes;
    }
  }
  std::vector<Cut> list;
  for (auto& [id, cut] : cuts) list.push_back(std::move(cut));
  return list;
}

// The variable in up to `factor` times as many shards. The rows of a shard count as equally busy.
Cut Finer(const Cut& cut, int64_t factor) {
  const VariableLayout& variable = *cut.variable;
  int64_t shards = std::min({variable.num_shards() * factor, variable.rows(), kMaxShards});
  // Each part of a table has its share of max_rows.
  if (const auto& table = variable.spec.table; table && table->max_rows > 0)
    shards = std::min(shards, table->max_rows);
  const absl::StatusOr<DivSplit> split = DivSplit::Create(variable.rows(), shards);
  if (!split.ok() || split->num_shards() <= variable.num_shards()) return cut;
  Cut finer{cut.variable, cut.is_anchor, std::vector<ShardLoad>(split->num_shards())};
  for (size_t part = 0; part < cut.shards.size(); ++part) {
    const int64_t first = variable.offsets[part], end = variable.offsets[part + 1];
    for (int64_t piece = split->FindChecked(first).shard;
         piece < split->num_shards() && split->offset(piece) < end; ++piece) {
      const int64_t rows =
          std::min(end, split->offset(piece + 1)) - std::max(first, split->offset(piece));
      const double share = static_cast<double>(rows) / static_cast<double>(end - first);
      ShardLoad& to = finer.shards[static_cast<size_t>(piece)];
      to.bytes_per_second += share * cut.shards[part].bytes_per_second;
      to.bytes += static_cast<int64_t>(share * static_cast<double>(cut.shards[part].bytes));
    }
  }
  return finer;
}

Servers ServersNow(const Layout& layout, const std::map<ShardKey, ShardLoad>& loads, int num_ps) {
  Servers servers(num_ps);
  for (const auto& [id, variable] : layout.variables()) {
    for (int part = 0; part < variable.num_shards(); ++part)
      servers.Add(variable.ps[static_cast<size_t>(part)], LoadOf(loads, variable, part));
  }
  return servers;
}

struct Placed {
  std::vector<std::vector<int>> ps;  // of each cut
  double imbalance = 1;
};

// Nullopt: a shard finds no server with room.
std::optional<Placed> Place(const std::vector<Cut>& cuts, int num_ps, double total_load,
                            int64_t total_bytes, const std::vector<int64_t>& room) {
  std::vector<std::pair<size_t, size_t>> order;  // (cut, shard)
  for (size_t i = 0; i < cuts.size(); ++i) {
    for (size_t shard = 0; shard < cuts[i].shards.size(); ++shard) order.push_back({i, shard});
  }
  const auto shard_at = [&cuts](const std::pair<size_t, size_t>& at) -> const ShardLoad& {
    return cuts[at.first].shards[at.second];
  };
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    const ShardLoad &x = shard_at(a), &y = shard_at(b);
    return std::pair(x.bytes_per_second, x.bytes) > std::pair(y.bytes_per_second, y.bytes);
  });
  Placed placed;
  for (const Cut& cut : cuts) placed.ps.emplace_back(cut.shards.size());
  Servers servers(num_ps);
  const auto cost = [&](const ShardLoad& ps) {
    return ps.bytes_per_second / std::max(total_load, 1e-9) +
           kWeightOfBytes * static_cast<double>(ps.bytes) /
               static_cast<double>(std::max<int64_t>(total_bytes, 1));
  };
  for (const auto& at : order) {
    const ShardLoad& shard = shard_at(at);
    int best = -1;
    for (int ps = 0; ps < num_ps; ++ps) {
      const ShardLoad& has = servers.all[static_cast<size_t>(ps)];
      if (!room.empty() && has.bytes + shard.bytes > room[static_cast<size_t>(ps)]) continue;
      if (best < 0 || cost(has) < cost(servers.all[static_cast<size_t>(best)])) best = ps;
    }
    if (best < 0) return std::nullopt;
    servers.Add(best, shard);
    placed.ps[at.first][at.second] = best;
  }
  placed.imbalance = servers.Imbalance();
  return placed;
}

}  // namespace

double ImbalanceOf(const Layout& layout, const std::map<ShardKey, ShardLoad>& loads, int num_ps) {
  return ServersNow(layout, loads, num_ps).Imbalance();
}

std::optional<Arrangement> Arrange(const Layout& layout,
                                   const std::map<std::string, Colocation>& colocated,
                                   const std::map<ShardKey, ShardLoad>& loads, int num_ps,
                                   const ArrangeOptions& options) {
  const std::vector<Cut> now = CutsNow(layout, colocated, loads);
  const Servers servers = ServersNow(layout, loads, num_ps);
  const double before = servers.Imbalance(), total = servers.total_load();
  if (before <= options.good_enough) return std::nullopt;

  std::optional<Placed> best;
  std::vector<Cut> best_cuts;
  for (int64_t factor = 1; factor <= kMostPieces; factor *= 2) {
    std::vector<Cut> cuts = now;
    for (Cut& cut : cuts) {
      if (factor > 1 && !cut.is_anchor && cut.heaviest() > total / num_ps / 2)
        cut = Finer(cut, factor);
    }
    std::optional<Placed> placed = Place(cuts, num_ps, total, servers.total_bytes(), options.room);
    // More shards cost something, so they must be worth it.
    if (!placed || (best && placed->imbalance > 0.97 * best->imbalance)) continue;
    best = std::move(placed);
    best_cuts = std::move(cuts);
    if (best->imbalance <= options.good_enough) break;
  }
  if (!best || best->imbalance > (1 - options.least_gain) * before) return std::nullopt;

  Arrangement arrangement;
  arrangement.before = before;
  arrangement.after = best->imbalance;
  for (size_t i = 0; i < best_cuts.size(); ++i) {
    const VariableLayout& variable = *best_cuts[i].variable;
    if (best->ps[i].size() != variable.ps.size())
      ++arrangement.cut;
    else
      for (size_t part = 0; part < variable.ps.size(); ++part)
        arrangement.moved += best->ps[i][part] != variable.ps[part];
    arrangement.ps[variable.spec.name] = std::move(best->ps[i]);
  }
  return arrangement;
}

}  // namespace divvy
