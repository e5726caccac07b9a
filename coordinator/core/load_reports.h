// What the coordinator knows of the load of the parameter servers.
#ifndef DIVVY_COORDINATOR_CORE_LOAD_REPORTS_H_
#define DIVVY_COORDINATOR_CORE_LOAD_REPORTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/core/arrangement.h"
#include "coordinator/core/server_set.h"
#include "variables/layout.h"
#include "variables/shard_key.h"

namespace divvy {

struct LoadReport {
  // Whether every server has told its load for some seconds in this epoch.
  bool is_known = false;
  // All shards of slot 0, with the memory of their slots.
  std::map<ShardKey, ShardLoad> shards;
  // [servers] the bytes that each may hold with some in reserve, or the largest number if that is
  // not known.
  std::vector<int64_t> room;
};

// The load as the servers last told it. Pure.
LoadReport LoadNow(const Layout& layout, const ServerSet& servers);

// The variable that has most of a server's load, and its share of it, up to 1.
struct BusiestVariable {
  std::string name;
  double share = 0;
};

// [servers] Nullopt: the server has no load, or none is known. Pure.
std::vector<std::optional<BusiestVariable>> BusiestVariables(const Layout& layout,
                                                             const ServerSet& servers);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_LOAD_REPORTS_H_
