// The shards that a layout is made of, as the ps are told them.
#ifndef DIVVY_COORDINATOR_CORE_SHARD_SPECS_H_
#define DIVVY_COORDINATOR_CORE_SHARD_SPECS_H_

#include <map>
#include <vector>

#include "cluster/layout.h"
#include "cluster/messages.h"

namespace divvy {

// All are pure. REQUIRES: 0 <= slot <= variable.slots.size(), 0 <= part < variable.num_shards().

// The shard of slot `slot` (0: the variable itself) that lies on part `part` of `variable`.
// `initializer`: of its first values; it must be EvaluatedPerRow.
ShardSpec ShardSpecOf(const VariableLayout& variable, int slot, int part,
                      const Initializer& initializer);

// All shards of a variable and its slots, by ps. `initializer`: of the variable itself; slots begin
// with their own value.
std::map<int, std::vector<ShardSpec>> ShardSpecsOf(const VariableLayout& variable,
                                                   const Initializer& initializer);

// Adds `more` behind what `all` has for each ps.
void AppendShards(const std::map<int, std::vector<ShardSpec>>& more,
                  std::map<int, std::vector<ShardSpec>>& all);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_SHARD_SPECS_H_
