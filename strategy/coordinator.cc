#include "strategy/coordinator.h"

#include "base/guarded.h"
#include "base/status_macros.h"
#include "strategy/trainer_support.h"

namespace divvy {

absl::StatusOr<std::map<std::string, TensorSpec>> PerWorkerDataset::ElementSpec() const {
  // As on a worker: the replicas, and no variables.
  StrategyParts parts;
  parts.executor = strategy_->parts().executor;
  parts.replica_devices = strategy_->parts().replica_devices;
  Strategy strategy(std::move(parts));
  const internal::ContextEntry scope({internal::ContextKind::kScope, &strategy});
  InputContext context;
  context.num_replicas_in_sync = strategy.num_replicas_in_sync();
  using Specs = absl::StatusOr<std::map<std::string, TensorSpec>>;
  return internal::Guarded<Specs>("the data source", [&]() -> Specs {
    ASSIGN_OR_RETURN(const Dataset dataset, DataSourceRegistry::Open(source_, context));
    return dataset.ElementSpec();
  });
}

namespace internal {

TrainerSupport& SupportOf(Coordinator& coordinator) { return coordinator.trainer_support(); }

}  // namespace internal
}  // namespace divvy
