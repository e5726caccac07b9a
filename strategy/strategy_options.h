// How a job cuts and places its variables, and how the replicas of a worker communicate.
#ifndef DIVVY_STRATEGY_STRATEGY_OPTIONS_H_
#define DIVVY_STRATEGY_STRATEGY_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "partitioners/partitioner.h"
#include "strategy/per_replica.h"
#include "variables/variable_spec.h"

namespace divvy {

// Settings for all variables of a job. The program gives them at the job's start (DIVVY_PROGRAM,
// Connect, StartEmbedded); they do not change later. Workers are asynchronous: a step reads the
// current values, whatever the other workers do. A plain value.
//   kRoundRobin  each shard goes to the next parameter server, in order of creation, whatever the
//                shard's size, as in TensorFlow
//   kBalanced    each shard goes to the parameter server with the fewest bytes of variables
// An invalid partitioner is reported by the first variable that uses it, not at the start.
struct StrategyOptions {
  // Returns the partitioner of a variable whose spec has none. The coordinator calls it for each
  // such variable, with the current number of parameter servers (a job may be resized). It must not
  // block. Empty: variables are not cut.
  std::function<Partitioner(int num_ps)> partitioner;
  enum class Placement { kRoundRobin, kBalanced } placement = Placement::kRoundRobin;
  // Returns the format of a float32 variable whose spec has kExact, the default. The coordinator
  // calls it when a variable is created. It must not block. Empty: kExact.
  //
  //   options.wire = [](const VariableSpec&) { return WireFormat::kBFloat16; };
  std::function<WireFormat(const VariableSpec& spec)> wire = {};
  // How the replicas of a worker combine values. A call's own options override it (MergeOptions).
  // Its timeout holds for every collective, including ApplyGradients and MergeCall. Each task reads
  // it from the program of its own process, so with Connect the workers' program sets it.
  CommunicationOptions communication = {};
  // Not OK: these options cannot be used, and starting the job with them returns this error.
  absl::Status problem = {};
};

namespace runner {

// tensorflow_gnn's runner.ParameterServerStrategy. MinSizePartitioner cuts the variables into at
// most as many shards as there are parameter servers. None: the partitioner's default size (256
// KiB). Below 1: the job's start returns InvalidArgument; 0 does not mean the default.
StrategyOptions ParameterServerStrategy(std::optional<int64_t> min_shard_bytes = {});

}  // namespace runner
}  // namespace divvy

#endif  // DIVVY_STRATEGY_STRATEGY_OPTIONS_H_
