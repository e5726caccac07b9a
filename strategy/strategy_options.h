// How a job cuts and places its variables.
#ifndef DIVVY_STRATEGY_STRATEGY_OPTIONS_H_
#define DIVVY_STRATEGY_STRATEGY_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "partitioners/partitioner.h"

namespace divvy {

// What a job fixes for all its variables. Given when it starts (DIVVY_PROGRAM, Connect,
// StartEmbedded), and the same for its life. Workers are asynchronous: a step reads whatever is
// there. A plain value.
//   kRoundRobin  shard after shard goes to the next parameter server, in order of creation,
//   whatever its size (as TensorFlow) kBalanced    each shard goes to the parameter server that
//   holds the fewest bytes of variables
// A partitioner that makes no sense is told by the first variable that it is asked about, not at
// the start.
struct StrategyOptions {
  // Asked on the coordinator for each variable whose spec has none of its own, with the number of
  // parameter servers by then: a job may be resized. It must not block. Empty: variables are not
  // cut.
  std::function<Partitioner(int num_ps)> partitioner;
  enum class Placement { kRoundRobin, kBalanced } placement = Placement::kRoundRobin;
  // Why these options cannot be used: what starting with them returns.
  absl::Status problem = {};
};

namespace runner {

// tensorflow_gnn's runner.ParameterServerStrategy: variables are cut by MinSizePartitioner with as
// many shards as parameter servers at most. None: its default size (256 KiB). Below 1: starting is
// InvalidArgument; 0 is not "default".
StrategyOptions ParameterServerStrategy(std::optional<int64_t> min_shard_bytes = {});

}  // namespace runner
}  // namespace divvy

#endif  // DIVVY_STRATEGY_STRATEGY_OPTIONS_H_
