// Cutting batches for replicas, by the rules of TensorFlow's Dataset.rebatch and of its distributed
// datasets.
#ifndef DIVVY_DATA_REBATCH_H_
#define DIVVY_DATA_REBATCH_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "data/dataset.h"

namespace divvy {

// The sizes into which worker `worker` of `workers` cuts its stream of global batches, in cyclic
// order, with `replicas` replicas on each worker. A global batch is divided into workers x replicas
// sizes; the first few are larger by one if it does not divide evenly. Each worker's list begins at
// the sizes of its own replicas. Example: a batch of 7 over 2 workers with 2 replicas gives 2 2 2 1
// and 2 1 2 2. Pure. InvalidArgument: no worker or no replica, a worker that is not in [0,
// workers), or a negative batch.
absl::StatusOr<std::vector<int64_t>> BatchSizesForWorker(int64_t global_batch, int64_t workers,
                                                         int64_t replicas, int64_t worker);

// Cuts the examples of `batches` into batches of the given sizes, in a cycle, across the borders of
// the original batches. Size 0 makes a batch without rows. The last batch may be smaller, unless
// drop_remainder drops it; it ends the stream. If the examples end with a full batch, the batches
// of size 0 that follow it are still returned. A batch that lies within one original batch shares
// its buffers.
//
// A seek costs one batch if all batches but the last are known to have the same size, because they
// come from Batch and no later transform mixes them. Otherwise the data is read forward once.
// InvalidArgument: no sizes, a negative one, or none above 0; or elements that are not batches
// ("call Batch first").
Dataset Rebatch(const Dataset& batches, std::vector<int64_t> sizes, bool drop_remainder = false);

// Cuts global batches into one batch for each replica in turn, for a worker with `replicas`
// replicas. If all batches are known to have the same size, because they come from Batch with
// drop_remainder and were not mapped since, this is Rebatch with BatchSizesForWorker's sizes for
// one worker. Otherwise each batch is cut by itself into pieces of ceil(rows / replicas); the last
// pieces may be smaller or empty. 9 rows for 4 replicas: 3 2 2 2 in the first case, 3 3 3 0 in
// the second. With one replica the dataset is returned unchanged.
Dataset RecutForReplicas(const Dataset& global_batches, int replicas);

}  // namespace divvy

#endif  // DIVVY_DATA_REBATCH_H_
