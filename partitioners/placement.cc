#include "partitioners/placement.h"

#include <algorithm>

namespace divvy {

std::vector<int> PlaceRoundRobin(int64_t counter, int64_t num_shards, int num_ps) {
  std::vector<int> placed(num_shards);
  for (int64_t shard = 0; shard < num_shards; ++shard)
    placed[shard] = static_cast<int>((counter + shard) % num_ps);
  return placed;
}

std::vector<int> PlaceBalanced(absl::Span<const int64_t> ps_bytes,
                               absl::Span<const int64_t> shard_bytes) {
  std::vector<int64_t> load(ps_bytes.begin(), ps_bytes.end());
  std::vector<int> placed;
  for (const int64_t bytes : shard_bytes) {
    const auto lightest = std::min_element(load.begin(), load.end());
    *lightest += bytes;
    placed.push_back(static_cast<int>(lightest - load.begin()));
  }
  return placed;
}

}  // namespace divvy
