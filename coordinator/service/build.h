// A coordinator made of its parts, as a process and a cluster in one process have it.
#ifndef DIVVY_COORDINATOR_SERVICE_BUILD_H_
#define DIVVY_COORDINATOR_SERVICE_BUILD_H_

#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "cluster/clients.h"
#include "cluster/cluster_resolver.h"
#include "coordinator/core/blocking_coordinator.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/progress_sink.h"
#include "coordinator/core/store.h"
#include "coordinator/report/reporter.h"
#include "strategy/strategy_options.h"

namespace divvy {

struct CoordinatorSetup {
  // partitioner and placement are filled in from `strategy`
  CoordinatorOptions core;
  StrategyOptions strategy;
  // What the program sees of the cluster.
  std::shared_ptr<const ClusterResolver> resolver;
  // For the strategy's figures.
  int replicas_per_worker = 1;
  // None: nothing is drawn.
  std::optional<ReportOptions> report;
  // Who is told of progress where nothing is drawn; null: nobody. Outlives the coordinator.
  ProgressSink* sink = nullptr;
};

// In the order in which the parts use each other.
struct BuiltCoordinator {
  std::shared_ptr<CoordinatorCore> core;
  std::shared_ptr<Reporter> reporter;  // null: none
  std::unique_ptr<BlockingCoordinator> calls;
};

// Starts the core: it dials at once. Does not wait for the cluster. Errors as
// CoordinatorCore::Start. The executor, the dialer and the store outlive what is built.
absl::StatusOr<BuiltCoordinator> BuildCoordinator(CoordinatorSetup setup, Executor& executor,
                                                  Dialer& dialer, Store& store);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_BUILD_H_
