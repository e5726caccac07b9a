#include "coordinator/core/arrangement.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "partitioners/div.h"

namespace divvy {
namespace {

constexpr int kMostPieces = 16;
// More shards would cost messages and places, and help no more.
constexpr int64_t kMostShardsOfServer = 64;
constexpr int64_t kLeastRowsOfPart = 4096;
// Shards without load are placed by their bytes, which count little beside load.
constexpr double kWeightOfBytes = 0.1;

using Loads = std::map<ShardKey, ShardLoad>;

// What is placed on one server.
struct Piece {
  double load = 0;  // bytes per second
  int64_t bytes = 0;
  void Add(const Piece& other) {
    load += other.load;
    bytes += other.bytes;
  }
};

// A variable with its load in some cut.
struct Cut {
  const VariableLayout* variable = nullptr;
  // Another variable lies beside one of its shards.
  bool is_anchor = false;
  std::vector<Piece> shards;
  double heaviest() const {
    double most = 0;
    for (const Piece& shard : shards) most = std::max(most, shard.load);
    return most;
  }
};

struct Servers {
  explicit Servers(int num_ps) : all(static_cast<size_t>(num_ps)) {}
  void Add(int ps, const Piece& piece) { all[static_cast<size_t>(ps)].Add(piece); }
  Piece total() const {
    Piece sum;
    for (const Piece& ps : all) sum.Add(ps);
    return sum;
  }
  Balance balance() const {
    const double mean = total().load / static_cast<double>(all.size());
    double most = 0;
    for (const Piece& ps : all) most = std::max(most, ps.load);
    return {most, mean > 0 ? most / mean : 1};
  }

  std::vector<Piece> all;
};

// The variable beside whose shard `variable` lies at last, and that shard. Itself: beside none.
std::pair<const VariableLayout*, int> AnchorOf(const Layout& layout,
                                               const std::map<std::string, Colocation>& colocated,
                                               const VariableLayout& variable) {
  const VariableLayout* anchor = &variable;
  int shard = 0;
  for (auto with = colocated.find(anchor->spec.name); with != colocated.end();
       with = colocated.find(anchor->spec.name)) {
    const VariableLayout* const other = layout.Find(with->second.variable);
    // Only an older variable is placed before this one, and so this ends.
    if (other == nullptr || !(other->id < anchor->id)) break;
    shard = std::min(with->second.shard, other->num_shards() - 1);
    anchor = other;
  }
  return {anchor, shard};
}

ShardLoad LoadOf(const Loads& loads, const VariableLayout& variable, int part) {
  const auto load = loads.find(ShardKey{variable.id, 0, static_cast<uint16_t>(part)});
  return load == loads.end() ? ShardLoad() : load->second;
}

Piece PieceOf(const ShardLoad& load) {
  return {std::accumulate(load.bytes_per_second.begin(), load.bytes_per_second.end(), 0.0),
          load.bytes};
}

// The variables that are placed by themselves, with the load of what lies beside them.
std::vector<Cut> CutsNow(const Layout& layout, const std::map<std::string, Colocation>& colocated,
                         const Loads& loads) {
  std::map<VariableId, Cut> cuts;
  for (const auto& [id, variable] : layout.variables()) {
    const auto [anchor, beside] = AnchorOf(layout, colocated, variable);
    Cut& cut = cuts[anchor->id];
    cut.variable = anchor;
    cut.is_anchor = cut.is_anchor || anchor != &variable;
    cut.shards.resize(static_cast<size_t>(anchor->num_shards()));
    for (int part = 0; part < variable.num_shards(); ++part) {
      const int shard = anchor == &variable ? part : beside;
      cut.shards[static_cast<size_t>(shard)].Add(PieceOf(LoadOf(loads, variable, part)));
    }
  }
  std::vector<Cut> list;
  for (auto& [id, cut] : cuts) list.push_back(std::move(cut));
  return list;
}

int64_t ShardsWith(const VariableLayout& variable, int64_t factor, int num_ps) {
  const int64_t now = variable.num_shards();
  int64_t most = std::min({variable.rows(), kMaxShards, kMostShardsOfServer * num_ps});
  if (const auto& table = variable.spec.table; table && table->max_rows > 0)
    most = std::min(most, table->max_rows / kLeastRowsOfPart);
  return std::max(now, std::min(now * factor, most));
}

// Adds `piece` of the rows [first, end) to the shards in which they lie; the rows are equally busy.
void Spread(double first, double end, const Piece& piece, const DivSplit& split,
            std::vector<Piece>& shards) {
  for (int64_t shard = split.FindChecked(static_cast<int64_t>(first)).shard;
       shard < split.num_shards() && static_cast<double>(split.offset(shard)) < end; ++shard) {
    const double rows = std::min(end, static_cast<double>(split.offset(shard + 1))) -
                        std::max(first, static_cast<double>(split.offset(shard)));
    shards[static_cast<size_t>(shard)].Add(
        {piece.load * rows / (end - first),
         static_cast<int64_t>(static_cast<double>(piece.bytes) * rows / (end - first))});
  }
}

// The variable in up to `factor` times as many shards.
Cut Finer(const Cut& cut, const Loads& loads, int64_t factor, int num_ps) {
  const VariableLayout& variable = *cut.variable;
  const absl::StatusOr<DivSplit> split =
      DivSplit::Create(variable.rows(), ShardsWith(variable, factor, num_ps));
  if (!split.ok() || split->num_shards() <= variable.num_shards()) return cut;
  Cut finer{cut.variable, cut.is_anchor,
            std::vector<Piece>(static_cast<size_t>(split->num_shards()))};
  for (int part = 0; part < variable.num_shards(); ++part) {
    const ShardLoad load = LoadOf(loads, variable, part);
    const auto first = static_cast<double>(variable.offsets[static_cast<size_t>(part)]);
    const auto end = static_cast<double>(variable.offsets[static_cast<size_t>(part) + 1]);
    Spread(first, end, {0, load.bytes}, *split, finer.shards);
    const auto parts = static_cast<double>(load.bytes_per_second.size());
    for (size_t i = 0; i < load.bytes_per_second.size(); ++i) {
      const auto at = static_cast<double>(i);
      Spread(first + (end - first) * at / parts, first + (end - first) * (at + 1) / parts,
             {load.bytes_per_second[i], 0}, *split, finer.shards);
    }
  }
  return finer;
}

Servers ServersNow(const Layout& layout, const Loads& loads, int num_ps) {
  Servers servers(num_ps);
  for (const auto& [id, variable] : layout.variables()) {
    for (int part = 0; part < variable.num_shards(); ++part)
      servers.Add(variable.ps[static_cast<size_t>(part)], PieceOf(LoadOf(loads, variable, part)));
  }
  return servers;
}

struct Placed {
  std::vector<std::vector<int>> ps;  // of each cut
  double imbalance = 1;
};

// Nullopt: a shard finds no server with room.
std::optional<Placed> Place(const std::vector<Cut>& cuts, int num_ps, const Piece& total,
                            const std::vector<int64_t>& room) {
  std::vector<std::pair<size_t, size_t>> order;  // (cut, shard)
  for (size_t i = 0; i < cuts.size(); ++i) {
    for (size_t shard = 0; shard < cuts[i].shards.size(); ++shard) order.push_back({i, shard});
  }
  const auto shard_at = [&cuts](const std::pair<size_t, size_t>& at) -> const Piece& {
    return cuts[at.first].shards[at.second];
  };
  std::stable_sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    const Piece &x = shard_at(a), &y = shard_at(b);
    return std::pair(x.load, x.bytes) > std::pair(y.load, y.bytes);
  });
  Placed placed;
  for (const Cut& cut : cuts) placed.ps.emplace_back(cut.shards.size());
  Servers servers(num_ps);
  const auto cost = [&](const Piece& ps) {
    return ps.load / std::max(total.load, 1e-9) +
           kWeightOfBytes * static_cast<double>(ps.bytes) /
               static_cast<double>(std::max<int64_t>(total.bytes, 1));
  };
  for (const auto& at : order) {
    const Piece& shard = shard_at(at);
    int best = -1;
    for (int ps = 0; ps < num_ps; ++ps) {
      const Piece& has = servers.all[static_cast<size_t>(ps)];
      if (!room.empty() && has.bytes + shard.bytes > room[static_cast<size_t>(ps)]) continue;
      if (best < 0 || cost(has) < cost(servers.all[static_cast<size_t>(best)])) best = ps;
    }
    if (best < 0) return std::nullopt;
    servers.Add(best, shard);
    placed.ps[at.first][at.second] = best;
  }
  placed.imbalance = servers.balance().imbalance;
  return placed;
}

}  // namespace

Balance BalanceOf(const Layout& layout, const std::map<ShardKey, ShardLoad>& loads, int num_ps) {
  return ServersNow(layout, loads, num_ps).balance();
}

std::optional<Arrangement> Arrange(const Layout& layout,
                                   const std::map<std::string, Colocation>& colocated,
                                   const std::map<ShardKey, ShardLoad>& loads, int num_ps,
                                   const ArrangeOptions& options) {
  const std::vector<Cut> now = CutsNow(layout, colocated, loads);
  const Servers servers = ServersNow(layout, loads, num_ps);
  const double before = servers.balance().imbalance;
  const Piece total = servers.total();
  if (before <= options.good_enough) return std::nullopt;

  std::optional<Placed> best;
  std::vector<Cut> best_cuts;
  for (int64_t factor = 1; factor <= kMostPieces; factor *= 2) {
    std::vector<Cut> cuts = now;
    for (Cut& cut : cuts) {
      if (factor > 1 && !cut.is_anchor && cut.heaviest() > total.load / num_ps / 2)
        cut = Finer(cut, loads, factor, num_ps);
    }
    std::optional<Placed> placed = Place(cuts, num_ps, total, options.room);
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
