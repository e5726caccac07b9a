// Builds a worker from its parts. Used by the worker's process and by the embedded cluster.
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

// The parts of a worker; each part uses those above it. Destroy it after the executor has stopped.
struct BuiltWorker {
  std::unique_ptr<DataInputOpener> inputs;
  std::unique_ptr<ThreadStepRunner> runner;
  std::shared_ptr<WorkerCore> core;
};

// What the parts use. The caller keeps all references and pointers alive longer than the parts.
struct WorkerSurroundings {
  Executor& executor;
  Dialer& dialer;
  // Null: the worker does not register; the coordinator knows its address and dials it.
  CoordinatorClient* coordinator = nullptr;
  // The cluster for a step's questions, without this worker's GPUs.
  std::unique_ptr<ClusterResolver> resolver;
  // StrategyOptions::communication of the program.
  CommunicationOptions communication;
};

// Builds the parts and starts the core, which registers at once. `options`: replicas, seed and
// build are filled in. `replica_devices`: the device of each replica. Errors as WorkerCore::Start.
absl::StatusOr<BuiltWorker> BuildWorker(WorkerOptions options,
                                        const std::vector<Device>& replica_devices,
                                        WorkerSurroundings surroundings, OnExit on_exit);

}  // namespace divvy

#endif  // DIVVY_WORKER_SERVICE_BUILD_H_
