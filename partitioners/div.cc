#include "partitioners/div.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace divvy {

absl::StatusOr<DivSplit> DivSplit::Create(int64_t rows, int64_t shards) {
  if (rows < 0)
    return absl::InvalidArgumentError(absl::StrCat("cannot cut ", rows, " rows; give 0 or more"));
  if (shards < 1)
    return absl::InvalidArgumentError(
        absl::StrCat("cannot cut rows into ", shards, " shards; give at least 1"));
  return DivSplit(rows, std::max<int64_t>(1, std::min(shards, rows)));
}

std::vector<int64_t> DivSplit::sizes() const {
  std::vector<int64_t> sizes(shards_);
  for (int64_t shard = 0; shard < shards_; ++shard) sizes[shard] = size(shard);
  return sizes;
}

std::vector<int64_t> DivSplit::offsets() const {
  std::vector<int64_t> offsets(shards_ + 1);
  for (int64_t shard = 0; shard <= shards_; ++shard) offsets[shard] = offset(shard);
  return offsets;
}

absl::StatusOr<DivSplit::Place> DivSplit::Find(int64_t id) const {
  if (id < 0 || id >= rows_)
    return absl::InvalidArgumentError(absl::StrCat("id ", id, " is outside [0, ", rows_, ")"));
  return FindChecked(id);
}

std::string ShardName(absl::string_view variable, int64_t shard, int64_t num_shards) {
  return num_shards == 1 ? std::string(variable) : absl::StrCat(variable, "/part_", shard);
}

}  // namespace divvy
