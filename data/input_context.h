// The argument of a dataset function.
#ifndef DIVVY_DATA_INPUT_CONTEXT_H_
#define DIVVY_DATA_INPUT_CONTEXT_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace divvy {

// The context in which a worker opens its data: tf.distribute.InputContext, plus the worker's index
// and a seed. A plain value; nothing in it is checked here. Under kLease every worker must open the
// same sequence, so the function must not make it depend on worker_index.
struct InputContext {
  // 1 and 0, as under TensorFlow's parameter servers, so that sharding by these fields has no
  // effect. Under kFile and kData, which shard the function's dataset: num_workers and
  // worker_index.
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  // The number of replicas of this worker, not of all workers.
  int num_replicas_in_sync = 1;
  int worker_index = 0;
  int num_workers = 1;
  // For Shuffle. Under kLease it is the same on every worker and differs in each pass. Under the
  // other policies it differs on each worker.
  uint64_t seed = 0;

  // Divides the size of a worker's batch by its number of replicas. InvalidArgument: it is not a
  // multiple of num_replicas_in_sync.
  absl::StatusOr<int64_t> GetPerReplicaBatchSize(int64_t global_batch_size) const;
};

}  // namespace divvy

#endif  // DIVVY_DATA_INPUT_CONTEXT_H_
