// Arithmetic across replicas. Pure functions. A result for one replica is on that replica's device.
// A result for all replicas together (Reduce, Gather) is on the CPU.
//
// Replicas on GPUs:
//   dense floating values  are summed on the GPUs (device_sums.h), with the same bits as on the
//                          CPU. The exception is AllReduce with NCCL, which has its own order of
//                          additions.
//   IndexedSlices          AllReduce and ApplyGradients concatenate the rows on one of the GPUs,
//                          which passes them on.
//   AllGather              joins each replica's result on its own GPU. Its gradient is summed as by
//                          AllReduce. Nothing passes through the CPU.
//   Gather                 copies all parts to the CPU in one wait, in parallel for all GPUs, and
//                          joins them there, since the result belongs on the CPU. Joining on a GPU
//                          would take one wait too, and one more copy.
//   everything else        is reduced on the CPU, and copied there in one wait for all leaves.
//                          Integers are usually counts, which do not justify kernels of their own.
//                          Reductions over axes sum in double from the first element to the last,
//                          which no GPU does, so a GPU would give other bits. They usually sum the
//                          losses of a batch, which costs one wait on either device.
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

// The treatment of a leaf that is dense on one replica and IndexedSlices on another. (TensorFlow's
// reduce makes it dense; all_reduce refuses it.)
enum class Mixed : uint8_t { kMakeDense, kRefuse };

// The device on which rows of IndexedSlices from GPUs are concatenated and stay. kOnGpus: one of
// the GPUs, which take turns. It is for callers that use the rows there, such as a store's Write
// (CopyToCpu), which sums rows with the same id before it sends them.
enum class RowsMeet : uint8_t { kOnCpu, kOnGpus };

// Reduces leaf by leaf; `values` has one nest for each replica. Source of the rules:
// tf.distribute's reduce and all_reduce.
//   kNoAxis      elementwise; shapes must agree. IndexedSlices: ids and rows are concatenated in
//                replica order, duplicates are kept, and kMean divides the rows.
//   with axes    over the axes of each replica's value, then over the replicas. kMean divides by
//                the number of all elements, so partial batches are weighted correctly (it is not a
//                mean of means); NaN if there are none. IndexedSlices are made dense first.
// Texts must agree and are returned unchanged. InvalidArgument, naming the two replicas that
// disagree: structure, dtype or shape. InvalidArgument, too: an axis outside [-rank, rank) or given
// twice; bool; kMean of integers ("cast first": TensorFlow would return float64). REQUIRES: at
// least one value.
absl::StatusOr<Nest> ReduceNests(ReduceOp op, absl::Span<const Nest> values, const Axes& axes,
                                 Mixed mixed = Mixed::kMakeDense, RowsMeet rows = RowsMeet::kOnCpu);

// The result for each replica: ReduceNests of all values with kNoAxis and Mixed::kRefuse.
absl::StatusOr<std::vector<Nest>> AllReduceNests(ReduceOp op, absl::Span<const Nest> values,
                                                 const CommunicationOptions& options = {});

// Concatenates the values along `axis`, on `device`. InvalidArgument: rank 0, an axis outside
// [-rank, rank), or values that differ in dtype, rank or another dimension.
absl::StatusOr<Tensor> GatherTensors(absl::Span<const Tensor> values, int axis, Device device = {});

// The result for each replica: GatherTensors of all values, leaf by leaf. InvalidArgument, with the
// path: structures that differ, or a leaf that is not a tensor. Unimplemented: IndexedSlices, as in
// TensorFlow; gather their ids and rows instead.
absl::StatusOr<std::vector<Nest>> AllGatherNests(absl::Span<const Nest> values, int axis);

// Elements [begin, end) of `axis`, on the value's device. The derivative of GatherTensors uses it.
// InvalidArgument: as GatherTensors, or not 0 <= begin <= end <= dim(axis).
absl::StatusOr<Tensor> SliceAxis(const Tensor& value, int axis, int64_t begin, int64_t end);

// The dense tensor [num_rows, ...]. Rows with the same id are added.
absl::StatusOr<Tensor> ToDense(const IndexedSlices& slices);

// Moves every tensor in `value` to `device`; ids of IndexedSlices to the CPU, where lookups and
// parameter servers read them. Errors: those of Tensor::To.
absl::StatusOr<Nest> MoveTo(const Nest& value, Device device);

}  // namespace divvy::internal

#endif  // DIVVY_STRATEGY_REDUCE_H_
