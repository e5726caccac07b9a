// A worker made of its parts, as a process and a cluster in one process have it.
#ifndef DIVVY_WORKER_SERVICE_BUILD_H_
#define DIVVY_WORKER_SERVICE_BUILD_H_

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "cluster/cluster_resolver.h"
#include "protocol/clients.h"
#include "worker/core/data_input_opener.h"
#include "worker/core/thread_step_runner.h"
#include "worker/core/worker_core.h"

namespace divvy {

// In the order in which the parts use each other. To be destroyed when the executor has stopped.
struct BuiltWorker {
  std::unique_ptr<DataInputOpener> inputs;
  std::unique_ptr<ThreadStepRunner> runner;
  std::shared_ptr<WorkerCore> core;
};

// What the parts reach; all outlive them.
struct WorkerSurroundings {
  Executor& executor;
  Dialer& dialer;
  // null: the coordinator dials this worker
  CoordinatorClient* coordinator = nullptr;
  // The cluster as a step asks for it, without this worker's GPUs.
  std::unique_ptr<ClusterResolver> resolver;
  // StrategyOptions::communication of the program.
  CommunicationOptions communication;
};

// Starts the core: it registers at once. options: replicas, seed and build are filled in.
// `replica_devices`: where each replica computes. Errors as WorkerCore::Start.
absl::StatusOr<BuiltWorker> BuildWorker(WorkerOptions options,
                                        const std::vector<Device>& replica_devices,
                                        WorkerSurroundings surroundings, OnExit on_exit);

}  // namespace divvy

#endif  // DIVVY_WORKER_SERVICE_BUILD_H_
