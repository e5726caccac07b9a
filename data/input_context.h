// What a worker knows when it opens its data.
#ifndef DIVVY_DATA_INPUT_CONTEXT_H_
#define DIVVY_DATA_INPUT_CONTEXT_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace divvy {

// A plain value (tf.distribute.InputContext, and what its users asked for: which worker this is,
// and a seed). A data function is given one; nothing in it is checked here. Under kLease a function
// must not let its sequence depend on worker_index: every worker opens the same one.
struct InputContext {
  // 1 and 0, as under TensorFlow's parameter servers, so that sharding by them is no sharding; with
  // kFile and kData, which shard by themselves, workers and index
  int num_input_pipelines = 1;
  int input_pipeline_id = 0;
  int num_replicas_in_sync = 1;
  int worker_index = 0;
  int num_workers = 1;
  // For Shuffle. Under kLease the same on every worker and another in each pass, else another on
  // each worker.
  uint64_t seed = 0;

  // A replica's part of a batch that the replicas of a worker share. InvalidArgument: not a
  // multiple of num_replicas_in_sync.
  absl::StatusOr<int64_t> GetPerReplicaBatchSize(int64_t global_batch_size) const;
};

}  // namespace divvy

#endif  // DIVVY_DATA_INPUT_CONTEXT_H_
