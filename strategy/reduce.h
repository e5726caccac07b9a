// Arithmetic across replicas. Pure functions. What a replica gets lies where its own value lay;
// what all replicas get together (Reduce, Gather) on the CPU.
//
// Where replicas are on GPUs:
//   dense floating values  are summed there (device_sums.h), with the CPU's bits, but for what
//   AllReduce gives to NCCL, whose order of additions is its own. rows of IndexedSlices  are put
//   one after another on one of the GPUs where they are handed on from there: by AllReduce and
//   ApplyGradients. AllGather              joins each replica's result on its own GPU, and its
//   gradient is summed as by AllReduce: nothing goes by the CPU. Gather                 brings all
//   parts in one wait, each GPU's beside the others', and joins them on the CPU, where they are
//   wanted. Joined on one
//                          GPU they would take one wait too, after one more copy.
//   all else               is reduced on the CPU, where it is brought in one wait for all leaves
//                          together. Integers are counts as a rule, not worth kernels
//                          of their own. Over axes the CPU sums in double from the first element to
//                          the last, which no GPU does: the bits would be others; and what is
//                          summed is a batch's losses as a rule, for which one wait is the price
//                          wherever it is done.
#ifndef DIVVY_STRATEGY_REDUCE_H_
#define DIVVY_STRATEGY_REDUCE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "ops/ops.h"
#include "strategy/per_replica.h"
#include "tensor/nest.h"
#include "tensor/tensor.h"

namespace divvy::internal {

// What becomes of a leaf that is dense on one replica and IndexedSlices on another (TensorFlow:
// reduce makes it dense, all_reduce refuses).
enum class Mixed : uint8_t { kMakeDense, kRefuse };

// Where rows of IndexedSlices that lie on GPUs are put one after another, and stay. kOnGpus, which
// take turns: for who takes them from there, as a store's Write does (BringToCpu), which sums those
// with one id before they travel.
enum class RowsMeet : uint8_t { kOnCpu, kOnGpus };

// Leaf by leaf, one nest for each replica (source: tf.distribute's reduce and all_reduce).
//   kNoAxis      elementwise, shapes agree. IndexedSlices: ids and rows one after another in
//                replica order, duplicates kept; kMean divides the rows.
//   with axes    over the axes of each replica's value, then over the replicas. kMean divides by
//                the number of all elements, so partial batches weigh right (it is no mean of
//                means); NaN where there are none. IndexedSlices are made dense first.
// Texts must agree and stay as they are. InvalidArgument, naming the two replicas where they
// disagree: structure, dtype or shape; an axis outside [-rank, rank) or named twice; bool; kMean of
// integers ("cast first": TensorFlow would give float64). REQUIRES: at least one value.
absl::StatusOr<Nest> ReduceNests(ReduceOp op, absl::Span<const Nest> values, const Axes& axes,
                                 Mixed mixed = Mixed::kMakeDense, RowsMeet rows = RowsMeet::kOnCpu);

// For each replica, ReduceNests of all with kNoAxis and Mixed::kRefuse.
absl::StatusOr<std::vector<Nest>> AllReduceNests(ReduceOp op, absl::Span<const Nest> values,
                                                 const CommunicationOptions& options = {});

// The values one after another along `axis`, on `device`. InvalidArgument: rank 0, an axis outside
// [-rank, rank), or another dtype, rank or other dimension.
absl::StatusOr<Tensor> GatherTensors(absl::Span<const Tensor> values, int axis, Device device = {});

// For each replica, leaf by leaf: GatherTensors of their tensors. InvalidArgument, naming the path:
// structures that differ, a leaf that is no tensor. Unimplemented: IndexedSlices, as in TensorFlow;
// gather their ids and rows.
absl::StatusOr<std::vector<Nest>> AllGatherNests(absl::Span<const Nest> values, int axis);

// Elements [begin, end) of `axis`, where the value lies: what GatherTensors' derivative needs.
// InvalidArgument: as GatherTensors, or not 0 <= begin <= end <= dim(axis).
absl::StatusOr<Tensor> SliceAxis(const Tensor& value, int axis, int64_t begin, int64_t end);

// [num_rows, ...], rows with the same id added up.
absl::StatusOr<Tensor> ToDense(const IndexedSlices& slices);

// Every tensor in it moved; ids of IndexedSlices to the CPU only, where lookups and parameter
// servers read them.
absl::StatusOr<Nest> MoveTo(const Nest& value, Device device);

}  // namespace divvy::internal

#endif  // DIVVY_STRATEGY_REDUCE_H_
