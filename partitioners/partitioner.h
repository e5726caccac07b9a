// Partitioners: how many shards a variable is cut into.
#ifndef DIVVY_PARTITIONERS_PARTITIONER_H_
#define DIVVY_PARTITIONERS_PARTITIONER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace divvy {

// Returns the number of shards along each axis. There is one entry for each axis, and every entry
// but the first must be 1. The sizes of the shards always follow the div rule (partitioners/div.h).
//
// The coordinator calls it for each variable of rank >= 1: when the variable is created, and again
// when a checkpoint is laid out for other parameter servers. So it must return the same answer for
// the same shape and dtype, and it must not block.
//
// Any function of this form will do. The three below are TensorFlow's
// (tf.distribute.experimental.partitioners). They are pure and thread-safe, and take any fully
// known shape, however large.
//
//   spec.partitioner = FixedShardsPartitioner{4};
//   // One shard for each million rows.
//   spec.partitioner = [](const Shape& shape, DType) -> absl::StatusOr<std::vector<int64_t>> {
//     std::vector<int64_t> counts(shape.rank(), 1);
//     counts[0] = 1 + shape.rows() / 1'000'000;
//     return counts;
//   };
//
// Errors of the three: InvalidArgument if an option is out of its range, if the shape is invalid or
// has unknown (-1) dimensions, or if the shape does not have the axis (FixedShards and MaxSize
// return OutOfRange then, as TensorFlow's IndexError). A shape without elements or without rows is
// never cut.
using Partitioner =
    std::function<absl::StatusOr<std::vector<int64_t>>(const Shape& shape, DType dtype)>;

// As many shards as a minimum size allows: max(1, min(rows, max_shards, ceil(bytes /
// min_shard_bytes))). The quotient is rounded *up*, as in TensorFlow, so a shard may be smaller
// than the minimum. The default max_shards of 1 never cuts; max_shards may exceed the number of
// parameter servers.
struct MinSizePartitioner {
  int64_t min_shard_bytes = 256 << 10;  // >= 1
  int64_t max_shards = 1;               // >= 1
  int64_t bytes_per_string = 16;        // >= 1; the assumed size of a kString element
  absl::StatusOr<std::vector<int64_t>> operator()(const Shape& shape, DType dtype,
                                                  int axis = 0) const;
};

// As few shards as a maximum size allows: ceil(rows / max(1, max_shard_bytes / row bytes)), but at
// most max_shards if that is > 0. Shards may exceed max_shard_bytes in two cases: if max_shards
// limits their number, and if a single row is larger, which then gets a shard of its own.
struct MaxSizePartitioner {
  int64_t max_shard_bytes;        // >= 1
  int64_t max_shards = 0;         // >= 0; 0: no limit
  int64_t bytes_per_string = 16;  // >= 1
  absl::StatusOr<std::vector<int64_t>> operator()(const Shape& shape, DType dtype,
                                                  int axis = 0) const;
};

// A fixed number of shards: min(num_shards, rows). Zero rows give one empty shard; TensorFlow fails
// later in this case.
struct FixedShardsPartitioner {
  int64_t num_shards;  // >= 1
  absl::StatusOr<std::vector<int64_t>> operator()(const Shape& shape, DType dtype,
                                                  int axis = 0) const;
};

// The number of shards along axis 0 that `counts`, the answer of a partitioner for `shape`, asks
// for: min(counts[0], rows), at least 1. InvalidArgument, naming the entry and the fix: `counts`
// does not have one entry for each axis (TensorFlow takes any length), the first entry is below 1,
// or a later one is not 1. REQUIRES: shape.rank() >= 1.
absl::StatusOr<int64_t> ShardsAlongRows(const Shape& shape, absl::Span<const int64_t> counts);

// The number of shards of a variable: calls `partitioner` and checks its answer. It is 1 for rank 0
// and for an empty function; neither calls anything. InvalidArgument: as ShardsAlongRows. Otherwise
// the partitioner's own error.
absl::StatusOr<int64_t> NumShards(const Partitioner& partitioner, const Shape& shape, DType dtype);

}  // namespace divvy

#endif  // DIVVY_PARTITIONERS_PARTITIONER_H_
