#include "data/distribute.h"

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "data/rebatch.h"
#include "data/recipes.h"
#include "data/transform.h"

namespace divvy {
namespace {

using data_internal::Recipe;

thread_local const internal::InputScope* current_scope = nullptr;

bool DealsOut(AutoShardPolicy policy) {
  return policy != AutoShardPolicy::kLease && policy != AutoShardPolicy::kOff;
}

// Whether `recipe`, or a dataset from which it is made, has a Shard with this worker's index and
// one shard for each worker.
bool IsShardedByHand(Recipe recipe, const InputContext& context) {
  while (const auto* telling = dynamic_cast<const data_internal::DescribedRecipe*>(recipe.get())) {
    const auto shard = telling->shard();
    if (shard && shard->num_shards == context.num_workers && shard->index == context.worker_index)
      return true;
    recipe = telling->source();
  }
  return false;
}

// The policy that a call with the policy `own` applies inside the scope. kOff: none, because the
// DataSource applies it.
absl::StatusOr<AutoShardPolicy> OwnPolicy(const internal::InputScope& scope, AutoShardPolicy own,
                                          absl::string_view call) {
  if (own == AutoShardPolicy::kHint) return own;  // AutoShard refuses it
  if (own == AutoShardPolicy::kLease || own == scope.policy()) return AutoShardPolicy::kOff;
  if (scope.policy() == AutoShardPolicy::kOff) return own;
  return absl::InvalidArgumentError(
      absl::StrCat(call,
                   ": its policy differs from that of its DataSource, by which the data is "
                   "distributed: set the policy in the DataSource's options"));
}

absl::StatusOr<const internal::InputScope*> NeedScope(absl::string_view call) {
  if (current_scope != nullptr) return current_scope;
  return absl::FailedPreconditionError(
      absl::StrCat(call,
                   " may be called only inside a DataSource function, which runs on each worker: "
                   "write one, and give it to CreatePerWorkerDataset, RunEpoch or the Trainer"));
}

}  // namespace

namespace internal {

InputScope::InputScope(const InputContext& context, AutoShardPolicy policy)
    : context_(context), policy_(policy), outer_(current_scope) {
  current_scope = this;
}
InputScope::~InputScope() { current_scope = outer_; }
const InputScope* InputScope::Current() { return current_scope; }

InputContext WithPipelines(InputContext context, AutoShardPolicy policy) {
  const bool by_worker = policy == AutoShardPolicy::kFile || policy == AutoShardPolicy::kData;
  context.num_input_pipelines = by_worker ? context.num_workers : 1;
  context.input_pipeline_id = by_worker ? context.worker_index : 0;
  return context;
}

absl::StatusOr<Dataset> AutoShard(const Dataset& dataset, AutoShardPolicy policy,
                                  const InputContext& context) {
  if (policy == AutoShardPolicy::kHint)
    return absl::InvalidArgumentError(
        "AutoShardPolicy::kHint is not supported: call Dataset::Shard(num_workers, worker_index) "
        "and set kOff");
  if (!DealsOut(policy)) return dataset;
  if (context.worker_index < 0 || context.worker_index >= context.num_workers)
    return absl::InvalidArgumentError(absl::StrCat("the data of ", context.num_workers,
                                                   " workers have no part for worker ",
                                                   context.worker_index));
  if (context.num_workers == 1) return dataset;
  // Shard may also hold out a part of the data, the same one on every worker. This worker cannot
  // tell the difference.
  if (IsShardedByHand(dataset.recipe(), context)) {
    DIVVY_LOG(WARNING) << "data: Shard(" << context.num_workers << ", " << context.worker_index
                       << ") and the sharding policy both take a part of the data: if Shard takes "
                          "this worker's part, remove it or set AutoShardPolicy::kOff";
  }
  return Dataset(data_internal::AutoShardRecipe(dataset.recipe(), policy, context.num_workers,
                                                context.worker_index));
}

}  // namespace internal

absl::StatusOr<Dataset> DistributeDataset(const Dataset& global_batches,
                                          const InputOptions& options) {
  ASSIGN_OR_RETURN(const internal::InputScope* scope, NeedScope("DistributeDataset"));
  ASSIGN_OR_RETURN(const AutoShardPolicy policy,
                   OwnPolicy(*scope, options.policy, "DistributeDataset"));
  ASSIGN_OR_RETURN(const Dataset part,
                   internal::AutoShard(global_batches, policy, scope->context()));
  return RecutForReplicas(part, scope->context().num_replicas_in_sync);
}

absl::StatusOr<Dataset> DistributeDatasetsFromFunction(const DatasetFunction& fn,
                                                       const InputOptions& options) {
  ASSIGN_OR_RETURN(const internal::InputScope* scope, NeedScope("DistributeDatasetsFromFunction"));
  ASSIGN_OR_RETURN(const AutoShardPolicy policy,
                   OwnPolicy(*scope, options.policy, "DistributeDatasetsFromFunction"));
  const AutoShardPolicy seen = policy == AutoShardPolicy::kOff ? scope->policy() : policy;
  ASSIGN_OR_RETURN(const Dataset dataset, fn(internal::WithPipelines(scope->context(), seen)));
  return internal::AutoShard(dataset, policy, scope->context());
}

}  // namespace divvy
