// Builds a coordinator from its parts, for a process of its own and for a cluster in one process.
#ifndef DIVVY_COORDINATOR_SERVICE_BUILD_H_
#define DIVVY_COORDINATOR_SERVICE_BUILD_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "cluster/cluster_resolver.h"
#include "coordinator/core/blocking_coordinator.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/progress_sink.h"
#include "coordinator/core/store.h"
#include "coordinator/report/reporter.h"
#include "protocol/clients.h"
#include "strategy/strategy_options.h"

namespace divvy {

// The inputs of BuildCoordinator.
struct CoordinatorSetup {
  // The partitioner, the placement and the wire format are filled in from `strategy`.
  CoordinatorOptions core;
  StrategyOptions strategy;
  // The cluster as the program sees it.
  std::shared_ptr<const ClusterResolver> resolver;
  // The number of replicas of each worker, from which the strategy computes its replica count.
  int replicas_per_worker = 1;
  // Nullopt: no progress is drawn.
  std::optional<ReportOptions> report;
  // Receives progress if none is drawn. May be null. REQUIRES: outlives the coordinator.
  ProgressSink* sink = nullptr;
};

// The parts of a coordinator. A part may use the parts before it, and so the last part is destroyed
// first.
struct BuiltCoordinator {
  std::shared_ptr<CoordinatorCore> core;
  // Null: no progress is drawn.
  std::shared_ptr<Reporter> reporter;
  std::unique_ptr<BlockingCoordinator> calls;
};

// Starts the core, which dials at once. Does not wait for the cluster. May block on the store and
// the catalog. Errors: those of CoordinatorCore::Start. REQUIRES: the executor, the dialer and the
// store outlive the result.
absl::StatusOr<BuiltCoordinator> BuildCoordinator(CoordinatorSetup setup, Executor& executor,
                                                  Dialer& dialer, Store& store);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_BUILD_H_
