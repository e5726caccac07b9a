// Which parameter server gets which shard: pure functions of what is placed already.
#ifndef DIVVY_PARTITIONERS_PLACEMENT_H_
#define DIVVY_PARTITIONERS_PLACEMENT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace divvy {

// Where a new variable is to lie (StrategyExtended::ColocateVarsWith): with a shard of one that
// exists. It is not cut then, and does not count where shards are placed in turn.
struct Colocation {
  std::string variable;
  int shard = 0;
};

// TensorFlow's rule: shard i goes to ps (counter + i) % num_ps, whatever its size. `counter` is the
// number of shards placed so far (a plain variable counts as one); the caller adds num_shards to it
// only when the variable has been created. So placement follows the order of creation. REQUIRES:
// counter >= 0, num_shards >= 0, num_ps >= 1.
std::vector<int> PlaceRoundRobin(int64_t counter, int64_t num_shards, int num_ps);

// Each shard, in order, goes to the ps with the fewest bytes by then; of equals, the lowest index.
// `ps_bytes` is what each holds now: one entry for each ps, at least one. Deterministic, so a
// restarted coordinator that creates in the same order places alike.
std::vector<int> PlaceBalanced(absl::Span<const int64_t> ps_bytes,
                               absl::Span<const int64_t> shard_bytes);

}  // namespace divvy

#endif  // DIVVY_PARTITIONERS_PLACEMENT_H_
