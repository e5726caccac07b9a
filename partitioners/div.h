// The div rule: how rows are cut into shards, and which shard has a row.
#ifndef DIVVY_PARTITIONERS_DIV_H_
#define DIVVY_PARTITIONERS_DIV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// TensorFlow's "div" strategy for `rows` rows in n shards: the first rows % n shards have rows / n
// + 1 rows each, the others rows / n.
//
//   DivSplit split = *DivSplit::Create(13, 5);   // sizes 3 3 3 2 2
//   split.Find(9)->shard == 3;   split.Find(9)->local_row == 0;
//
// n is never more than `rows`, except that zero rows make one empty shard. All numbers have 64
// bits. An immutable value; thread-safe.
class DivSplit {
 public:
  // The split of `rows` rows into `shards` shards. If there are more shards than rows, every row
  // gets one shard. InvalidArgument: rows < 0 or shards < 1.
  static absl::StatusOr<DivSplit> Create(int64_t rows, int64_t shards);

  // The rows that are split, and the shards that they are split into.
  int64_t rows() const { return rows_; }
  int64_t num_shards() const { return shards_; }
  // The number of rows of `shard`, and its first row. REQUIRES: 0 <= shard < num_shards(). offset
  // also takes num_shards() and then returns rows().
  int64_t size(int64_t shard) const { return base_ + (shard < extra_ ? 1 : 0); }
  int64_t offset(int64_t shard) const { return shard * base_ + (shard < extra_ ? shard : extra_); }
  std::vector<int64_t> sizes() const;    // [num_shards]
  std::vector<int64_t> offsets() const;  // [num_shards + 1], the last is rows()

  struct Place {
    int64_t shard = 0;
    int64_t local_row = 0;  // within the shard
  };
  // The shard that has row `id`, and the row's place in it. InvalidArgument: `id` is not in [0,
  // rows).
  absl::StatusOr<Place> Find(int64_t id) const;
  // As Find without the check, for loops over ids that have been checked. REQUIRES: 0 <= id <
  // rows().
  Place FindChecked(int64_t id) const {
    const int64_t in_larger = extra_ * (base_ + 1);  // rows of the shards with one row more
    if (id < in_larger) return {id / (base_ + 1), id % (base_ + 1)};
    return {extra_ + (id - in_larger) / base_, (id - in_larger) % base_};
  }

 private:
  DivSplit(int64_t rows, int64_t shards)
      : rows_(rows), shards_(shards), base_(rows / shards), extra_(rows % shards) {}
  int64_t rows_, shards_;
  int64_t base_, extra_;  // base_ >= 1 unless there are no rows
};

// The name of one shard: "<variable>/part_<shard>". If num_shards is 1, it is the variable's own
// name.
std::string ShardName(absl::string_view variable, int64_t shard, int64_t num_shards);

}  // namespace divvy

#endif  // DIVVY_PARTITIONERS_DIV_H_
