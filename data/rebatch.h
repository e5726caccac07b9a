// How batches are cut for replicas: the rules of TensorFlow's Dataset.rebatch and of its
// distributed datasets.
#ifndef DIVVY_DATA_REBATCH_H_
#define DIVVY_DATA_REBATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace divvy {

// The sizes, in cyclic order, into which worker `worker` of `workers` cuts its stream of global
// batches, with `replicas` replicas on each worker. Of workers x replicas sizes the first few are
// larger by one; each worker begins at its own replicas' place. 7 over 2 workers of 2: 2 2 2 1, and
// 2 1 2 2. InvalidArgument: fewer than one worker or replica, a worker that is none of them, or a
// negative batch.
absl::StatusOr<std::vector<int64_t>> BatchSizesForWorker(int64_t global_batch, int64_t workers,
                                                         int64_t replicas, int64_t worker);

// The examples of `batches` in batches of these sizes, again and again, across the borders between
// the batches they came in. Size 0 gives a batch without rows. The last batch may be smaller, and
// then ends the stream, unless it is dropped; where the examples end with a full batch, the sizes
// of 0 that are next still come. Shares the buffers of a batch that is not joined from several.
// Sought at the cost of one batch where all batches but the last are known to be alike (they come
// from Batch, with nothing behind it that mixes them), else read forward once. InvalidArgument: no
// sizes, a negative one, or none above 0; elements that are no batches ("call Batch first").
Dataset Rebatch(const Dataset& batches, std::vector<int64_t> sizes, bool drop_remainder = false);

// What a worker with so many replicas makes of global batches: one batch for each replica in turn.
// Where all batches are known to have one size (they come from Batch with drop_remainder, and were
// not mapped since), Rebatch with BatchSizesForWorker's sizes for one worker; else each batch by
// itself in pieces of ceil(rows / replicas), the last of which may be smaller or empty. 9 for 4: 3
// 2 2 2, and 3 3 3 0. With one replica the dataset as it is.
Dataset RecutForReplicas(const Dataset& global_batches, int replicas);

}  // namespace divvy

#endif  // DIVVY_DATA_REBATCH_H_
