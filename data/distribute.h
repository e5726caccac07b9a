// What a dataset function may do for the replicas of its worker: tf.distribute's
// experimental_distribute_dataset and distribute_datasets_from_function.
#ifndef DIVVY_DATA_DISTRIBUTE_H_
#define DIVVY_DATA_DISTRIBUTE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/input_context.h"

namespace divvy {

// Both stand only inside a DataSource function, on its thread: elsewhere FailedPrecondition. The
// policy is the DataSource's; one of their own they may have only where the DataSource has kOff.
// InvalidArgument: they have another all the same (the coordinator deals out by the DataSource's),
// or kHint.

// Global batches cut for the replicas of this worker: RecutForReplicas (data/rebatch.h) says how. A
// "global" batch is this worker's: with several workers each step still takes one.
absl::StatusOr<Dataset> DistributeDataset(const Dataset& global_batches,
                                          const InputOptions& options = {});

// What `fn` gives: batches for one replica each, as they are. Its own error. `fn` is called once,
// now, with what the DataSource function itself was given, but for the pipelines, which are those
// of this policy.
using DatasetFunction = std::function<absl::StatusOr<Dataset>(const InputContext&)>;
absl::StatusOr<Dataset> DistributeDatasetsFromFunction(const DatasetFunction& fn,
                                                       const InputOptions& options = {});

namespace internal {

// Where a DataSource function is called. One of a thread at a time may be the innermost; ends on
// the thread it began on.
class InputScope {
 public:
  InputScope(const InputContext& context, AutoShardPolicy policy);
  ~InputScope();
  InputScope(const InputScope&) = delete;
  InputScope& operator=(const InputScope&) = delete;

  static const InputScope* Current();  // null: none
  const InputContext& context() const { return context_; }
  AutoShardPolicy policy() const { return policy_; }

 private:
  const InputContext context_;
  const AutoShardPolicy policy_;
  const InputScope* const outer_;
};

// `context` as a function under this policy sees it: one pipeline, or with kFile and kData one for
// each worker.
InputContext WithPipelines(InputContext context, AutoShardPolicy policy);

// This worker's part of `dataset`; all of it where the policy is kLease or kOff. InvalidArgument:
// kHint, or a worker that is none of num_workers. Says in the log where the dataset looks as if it
// were sharded over the workers by hand already. What kFile needs of the files comes out of the
// iterator.
absl::StatusOr<Dataset> AutoShard(const Dataset& dataset, AutoShardPolicy policy,
                                  const InputContext& context);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_DATA_DISTRIBUTE_H_
