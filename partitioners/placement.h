// Placement: gives each shard a parameter server. Pure functions.
#ifndef DIVVY_PARTITIONERS_PLACEMENT_H_
#define DIVVY_PARTITIONERS_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace divvy {

// Places a new variable on the parameter server of a shard of an existing variable
// (StrategyExtended::ColocateVarsWith). The new variable is not cut then, and it does not advance
// the counter of PlaceRoundRobin.
struct Colocation {
  std::string variable;
  int shard = 0;
};

// TensorFlow's rule: shard i goes to ps (counter + i) % num_ps, whatever its size. Returns the ps
// of each shard. `counter` is the number of shards placed so far; a variable in one piece counts as
// one. The caller adds num_shards to it only after the variable has been created. So placement
// follows the order of creation. REQUIRES: counter >= 0, num_shards >= 0, num_ps >= 1.
std::vector<int> PlaceRoundRobin(int64_t counter, int64_t num_shards, int num_ps);

// Places each shard, in order, on the ps that has the fewest bytes at that point; among equals, the
// lowest index. Returns the ps of each shard. `ps_bytes` has one entry for each ps, at least one:
// the bytes that it holds now. Deterministic: a restarted coordinator that creates variables in the
// same order places them alike.
std::vector<int> PlaceBalanced(absl::Span<const int64_t> ps_bytes,
                               absl::Span<const int64_t> shard_bytes);

}  // namespace divvy

#endif  // DIVVY_PARTITIONERS_PLACEMENT_H_
