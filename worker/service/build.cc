#include "worker/service/build.h"

#include <utility>

#include "base/clock.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "ops/cuda/gpus.h"

namespace divvy {

absl::StatusOr<BuiltWorker> BuildWorker(WorkerOptions options,
                                        const std::vector<Device>& replica_devices,
                                        WorkerSurroundings surroundings, OnExit on_exit) {
  Executor& executor = surroundings.executor;
  BuiltWorker built;
  built.inputs = std::make_unique<DataInputOpener>(executor, replica_devices);
  ThreadStepRunnerOptions runner;
  runner.worker_index = options.index;
  runner.replica_devices = replica_devices;
  runner.resolver =
      WithAccelerators(std::move(surroundings.resolver), AcceleratorsAmong(replica_devices));
  runner.communication = surroundings.communication;
  runner.metrics = options.metrics;
  built.runner = std::make_unique<ThreadStepRunner>(std::move(runner), executor, *built.inputs);
  options.replicas = static_cast<int>(replica_devices.size());
  options.seed = EntropySeed();
  options.build = kVersion;
  ASSIGN_OR_RETURN(built.core, WorkerCore::Start(std::move(options), executor, Clock::Real(),
                                                 *built.runner, *built.inputs, surroundings.dialer,
                                                 surroundings.coordinator, std::move(on_exit)));
  return built;
}

}  // namespace divvy
