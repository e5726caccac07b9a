#include "strategy/strategy_options.h"

#include "absl/strings/str_cat.h"

namespace divvy::runner {

StrategyOptions ParameterServerStrategy(std::optional<int64_t> min_shard_bytes) {
  StrategyOptions options;
  if (min_shard_bytes && *min_shard_bytes < 1) {
    options.problem = absl::InvalidArgumentError(
        absl::StrCat("ParameterServerStrategy: min_shard_bytes must be at least 1, not ",
                     *min_shard_bytes, "; leave it out for the default"));
  }
  options.partitioner = [min_shard_bytes](int num_ps) -> Partitioner {
    MinSizePartitioner partitioner;
    partitioner.max_shards = num_ps;
    if (min_shard_bytes) partitioner.min_shard_bytes = *min_shard_bytes;
    return partitioner;
  };
  return options;
}

}  // namespace divvy::runner
