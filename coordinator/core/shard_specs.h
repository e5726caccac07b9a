// Describes the shards of a layout in the form in which the ps get them.
#ifndef DIVVY_COORDINATOR_CORE_SHARD_SPECS_H_
#define DIVVY_COORDINATOR_CORE_SHARD_SPECS_H_

#include <map>
#include <vector>

#include "protocol/messages.h"
#include "variables/layout.h"

namespace divvy {

// All are pure. REQUIRES: 0 <= slot <= variable.slots.size(), 0 <= part < variable.num_shards().

// The shard of slot `slot` (0: the variable itself) on part `part` of `variable`. `initializer`
// gives its first values; it must be EvaluatedPerRow.
ShardSpec ShardSpecOf(const VariableLayout& variable, int slot, int part,
                      const Initializer& initializer);

// All shards of a variable and its slots, by ps. `initializer` is for the variable itself; each
// slot begins with its own constant.
std::map<int, std::vector<ShardSpec>> ShardSpecsOf(const VariableLayout& variable,
                                                   const Initializer& initializer);

// Appends the shards in `more` to those in `all`, for each ps.
void AppendShards(const std::map<int, std::vector<ShardSpec>>& more,
                  std::map<int, std::vector<ShardSpec>>& all);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_SHARD_SPECS_H_
