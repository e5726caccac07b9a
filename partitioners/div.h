// The div rule: how rows are cut into shards, and where a row lives.
#ifndef DIVVY_PARTITIONERS_DIV_H_
#define DIVVY_PARTITIONERS_DIV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// TensorFlow's "div" strategy: of `rows` rows in n shards the first rows % n shards have rows / n +
// 1 rows, the others rows / n.
//
//   DivSplit split = *DivSplit::Create(13, 5);   // sizes 3 3 3 2 2
//   split.Find(9)->shard == 3;   split.Find(9)->local_row == 0;
//
// n is never more than `rows`; no rows are one empty shard. All in 64 bits. An immutable value;
// thread-safe.
class DivSplit {
 public:
  // InvalidArgument: rows < 0 or shards < 1. More shards than rows: one for each row.
  static absl::StatusOr<DivSplit> Create(int64_t rows, int64_t shards);

  int64_t rows() const { return rows_; }
  int64_t num_shards() const { return shards_; }
  // Rows of `shard`, and the first of them. REQUIRES: 0 <= shard < num_shards(); offset also takes
  // num_shards(), which gives rows().
  int64_t size(int64_t shard) const { return base_ + (shard < extra_ ? 1 : 0); }
  int64_t offset(int64_t shard) const { return shard * base_ + (shard < extra_ ? shard : extra_); }
  std::vector<int64_t> sizes() const;    // [num_shards]
  std::vector<int64_t> offsets() const;  // [num_shards + 1], the last is rows()

  struct Place {
    int64_t shard = 0;
    int64_t local_row = 0;  // within the shard
  };
  // Where row `id` lives. InvalidArgument: not in [0, rows).
  absl::StatusOr<Place> Find(int64_t id) const;
  // The same without the check, for loops over checked ids. REQUIRES: 0 <= id < rows().
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

// The name of one shard of `variable`: "<variable>/part_<shard>"; of a variable in one piece, the
// variable's own.
std::string ShardName(absl::string_view variable, int64_t shard, int64_t num_shards);

}  // namespace divvy

#endif  // DIVVY_PARTITIONERS_DIV_H_
