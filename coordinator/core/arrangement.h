// Where the shards of a job lie better, by their load.
#ifndef DIVVY_COORDINATOR_CORE_ARRANGEMENT_H_
#define DIVVY_COORDINATOR_CORE_ARRANGEMENT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "partitioners/placement.h"
#include "variables/layout.h"
#include "variables/shard_key.h"

namespace divvy {

// What a shard of a variable, with its slots, asks of its server.
struct ShardLoad {
  // Bytes that are read and written per second, in equal parts of the rows. Empty: none.
  std::vector<double> bytes_per_second;
  // Its memory.
  int64_t bytes = 0;
};

// A plain value.
struct Arrangement {
  // The ps of each shard, by the variable's name. A variable that is not there lies beside another
  // one (Colocation).
  std::map<std::string, std::vector<int>> ps;
  // The load of the busiest server, as a multiple of the mean: now, and as it will be.
  double before = 1, after = 1;
  // The shards that lie on another server than before, and the variables that are cut into more
  // shards, of which no shard counts as moved.
  int moved = 0, cut = 0;
};

// The options of Arrange.
struct ArrangeOptions {
  // A load of the busiest server that needs no mending, as a multiple of the mean.
  double good_enough = 1.1;
  // By which share the busiest server must get less to do.
  double least_gain = 0.1;
  // Whether CoordinatorCore::Rebalance needs to know the load of each server. The simulation does
  // not.
  bool needs_known_load = true;
  // [num_ps] the bytes that each server may hold. Empty: no server has a limit.
  std::vector<int64_t> room = {};
};

struct Balance {
  // The load of the busiest server, and as a multiple of the mean; 1 without load.
  double busiest_bytes_per_second = 0, imbalance = 1;
};
// Of `num_ps` servers. Pure. REQUIRES: as Arrange.
Balance BalanceOf(const Layout& layout, const std::map<ShardKey, ShardLoad>& loads, int num_ps);

// Gives the shards to `num_ps` servers so that all have about the same to do. The busiest shards
// are placed first, each on the server that has the least to do and has room. A variable of which
// one shard alone is more than half of a server's load is cut, by the div rule, into up to 16 times
// as many shards, at most 64 for each server. (A row that is hot alone stays hot.) A table with
// `max_rows` keeps at least 4,096 rows for each part, so that no part is full long before the table
// is. Variables in `colocated` stay beside their shard, which is not cut.
//
// Nullopt: the servers are balanced, or no arrangement is better. `loads` has the shards of slot 0;
// a shard that is not there has no load. Pure, and the same for the same arguments. REQUIRES:
// num_ps >= 1; the layout's shards lie on these servers.
std::optional<Arrangement> Arrange(const Layout& layout,
                                   const std::map<std::string, Colocation>& colocated,
                                   const std::map<ShardKey, ShardLoad>& loads, int num_ps,
                                   const ArrangeOptions& options = {});

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_ARRANGEMENT_H_
