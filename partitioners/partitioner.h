// How many shards a variable is cut into.
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

// How many shards along each axis; every entry but the first must be 1. The sizes always follow the
// div rule (partitioners/div.h). Called on the coordinator for each variable of rank >= 1: when it
// is created, and again when a checkpoint is laid out for other parameter servers, so one answer
// for one shape and dtype. It must not block. Any function of this form will do; the three below
// are TensorFlow's (tf.distribute.experimental.partitioners). They are pure and thread-safe, and
// take any shape that is fully known, however large.
//
//   spec.partitioner = FixedShardsPartitioner{4};
//   // a shard for each million rows
//   spec.partitioner = [](const Shape& shape, DType) -> absl::StatusOr<std::vector<int64_t>> {
//     std::vector<int64_t> counts(shape.rank(), 1);
//     counts[0] = 1 + shape.rows() / 1'000'000;
//     return counts;
//   };
//
// Errors of the three: InvalidArgument for an option out of its range, for a shape that is invalid
// or has unknown (-1) dimensions, and for an axis that the shape has not (FixedShards and MaxSize:
// OutOfRange, as TensorFlow's IndexError). A shape without elements, or without rows, is never cut.
using Partitioner =
    std::function<absl::StatusOr<std::vector<int64_t>>(const Shape& shape, DType dtype)>;

// max(1, min(rows, max_shards, ceil(bytes / min_shard_bytes))). The quotient is rounded *up*, as in
// TensorFlow: a shard may be smaller than the minimum. With the default max_shards nothing is ever
// cut; max_shards may exceed the number of parameter servers.
struct MinSizePartitioner {
  int64_t min_shard_bytes = 256 << 10;  // >= 1
  int64_t max_shards = 1;               // >= 1
  int64_t bytes_per_string = 16;        // >= 1; the assumed size of a kString element
  absl::StatusOr<std::vector<int64_t>> operator()(const Shape& shape, DType dtype,
                                                  int axis = 0) const;
};

// ceil(rows / max(1, max_shard_bytes / row bytes)), at most max_shards where that is > 0. The cap
// wins over the byte limit, and so does a single row that is larger than it: such a row gets a
// shard of its own.
struct MaxSizePartitioner {
  int64_t max_shard_bytes;        // >= 1
  int64_t max_shards = 0;         // >= 0; 0: no cap
  int64_t bytes_per_string = 16;  // >= 1
  absl::StatusOr<std::vector<int64_t>> operator()(const Shape& shape, DType dtype,
                                                  int axis = 0) const;
};

// min(num_shards, rows). No rows: one (empty) shard, where TensorFlow fails later.
struct FixedShardsPartitioner {
  int64_t num_shards;  // >= 1
  absl::StatusOr<std::vector<int64_t>> operator()(const Shape& shape, DType dtype,
                                                  int axis = 0) const;
};

// The number of shards along axis 0 that `counts`, a partitioner's answer for `shape`, asks for:
// min(counts[0], rows), at least 1. InvalidArgument, naming the entry and the fix: not one entry
// for each axis (stricter than TensorFlow, which takes any length), a first entry below 1, or a
// later one other than 1. REQUIRES: shape.rank() >= 1.
absl::StatusOr<int64_t> ShardsAlongRows(const Shape& shape, absl::Span<const int64_t> counts);

// Asks `partitioner` and checks its answer: the number of shards of a variable. Rank 0, or an empty
// function: 1, nobody is asked. InvalidArgument: as ShardsAlongRows; else the partitioner's own
// error.
absl::StatusOr<int64_t> NumShards(const Partitioner& partitioner, const Shape& shape, DType dtype);

}  // namespace divvy

#endif  // DIVVY_PARTITIONERS_PARTITIONER_H_
