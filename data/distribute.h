// Functions that a dataset function may use to distribute data over the replicas of its worker:
// tf.distribute's experimental_distribute_dataset and distribute_datasets_from_function.
#ifndef DIVVY_DATA_DISTRIBUTE_H_
#define DIVVY_DATA_DISTRIBUTE_H_

#include <functional>

#include "absl/status/statusor.h"
#include "data/dataset.h"
#include "data/input_context.h"

namespace divvy {

// Call both functions only inside a DataSource function, on its thread; elsewhere they return
// FailedPrecondition. The DataSource's policy applies. `options` may set a policy only if the
// DataSource has kOff. InvalidArgument: it sets another policy although the DataSource has one (the
// coordinator distributes the data by the DataSource's policy), or it sets kHint.

// Cuts global batches for the replicas of this worker, as RecutForReplicas (data/rebatch.h)
// describes. A "global" batch is the batch of one step on one worker, however many workers there
// are.
absl::StatusOr<Dataset> DistributeDataset(const Dataset& global_batches,
                                          const InputOptions& options = {});

using DatasetFunction = std::function<absl::StatusOr<Dataset>(const InputContext&)>;
// Returns the dataset that `fn` returns. Its elements must be batches for one replica each; they
// are not cut. If `options` sets a policy, the result is this worker's part of the dataset. `fn` is
// called once, during this call. It gets the InputContext of the DataSource function, with the
// pipelines of the policy that applies. Errors: also those of `fn`.
absl::StatusOr<Dataset> DistributeDatasetsFromFunction(const DatasetFunction& fn,
                                                       const InputOptions& options = {});

namespace internal {

// Marks that this thread runs a DataSource function. Scopes may nest; Current is the innermost of
// the thread. Must be destroyed on the thread that made it.
class InputScope {
 public:
  InputScope(const InputContext& context, AutoShardPolicy policy);
  ~InputScope();
  InputScope(const InputScope&) = delete;
  InputScope& operator=(const InputScope&) = delete;

  // Null: this thread runs no DataSource function.
  static const InputScope* Current();
  const InputContext& context() const { return context_; }
  AutoShardPolicy policy() const { return policy_; }

 private:
  const InputContext context_;
  const AutoShardPolicy policy_;
  const InputScope* const outer_;
};

// Returns `context` as a function with this policy gets it: one pipeline, or with kFile and kData
// one for each worker.
InputContext WithPipelines(InputContext context, AutoShardPolicy policy);

// Returns this worker's part of `dataset`; with kLease and kOff, all of it. Logs a warning if the
// dataset already has a Shard with this worker's index. InvalidArgument: kHint, or a worker
// index that is not in [0, num_workers). Errors of kFile that concern the files come from the
// iterator.
absl::StatusOr<Dataset> AutoShard(const Dataset& dataset, AutoShardPolicy policy,
                                  const InputContext& context);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_DATA_DISTRIBUTE_H_
