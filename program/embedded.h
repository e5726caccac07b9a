// The whole cluster in one process.
#ifndef DIVVY_PROGRAM_EMBEDDED_H_
#define DIVVY_PROGRAM_EMBEDDED_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "coordinator/core/store.h"
#include "coordinator/service/build.h"
#include "ops/cuda/gpus.h"
#include "program/in_process_clients.h"
#include "program/main.h"
#include "ps_server/core/parameter_server_core.h"
#include "worker/service/build.h"

namespace divvy {

// InvalidArgument: two steps, models or data sources of one name. For every process that runs them.
absl::Status CheckRegistrations();

struct EmbeddedSetup {
  EmbeddedOptions options;
  // Of each parameter server; who it is is filled in.
  ParameterServerOptions ps;
  // Of each worker; who it is is filled in.
  WorkerOptions worker;
  // Of the coordinator; seed, tasks, strategy, resolver and replicas are filled in from `options`.
  CoordinatorSetup coordinator;
  // Of options.gpus.
  cuda::DeviceOptions gpu_math = {};
  // Of a matrix product; 0: cores / replicas, at least 1.
  int blas_threads = 0;
  std::optional<CheckpointId> only;  // of options.checkpoint_dir: RestoreLatest takes this one,
                                     // without slots, and none is made. None: the newest
};

// The three roles joined by in-process clients, each with the objects that it has in a cluster.
// Members go in the order that lets tasks end first.
class EmbeddedCluster {
 public:
  // As StartEmbedded.
  static absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Start(const EmbeddedSetup& setup);
  ~EmbeddedCluster();  // stops all tasks

  BlockingCoordinator& coordinator() { return *coordinator_.calls; }
  // As a signal to a chief: no more steps begin, those in flight end, a last checkpoint is made
  // where there is a directory, and the program's calls fail. Returns at once.
  void Drain() {
    coordinator_.core->Drain([] {});
  }
  Reporter* reporter() { return coordinator_.reporter.get(); }  // null: none
  // For tests: the task is gone as if killed, and (RestartWorker) begins a new life.
  void KillWorker(int index);
  absl::Status RestartWorker(int index);
  void KillPs(int index);
  absl::Status RestartPs(int index);  // comes back empty, as another life
  void CutPs(int index);              // nobody reaches it, until
  void HealPs(int index);             // REQUIRES: it has not been killed
  // How much each role holds: the coordinator's Sizes, and of parameter servers and workers what
  // Inspect tells, each of the one that holds most.
  std::map<std::string, int64_t> Sizes() const;
  ParameterServerSnapshot InspectPs(int index) const {
    return ps_[static_cast<size_t>(index)]->Inspect(ParameterServerCore::Detail::kWithoutValues);
  }

 private:
  EmbeddedCluster(const EmbeddedSetup& setup, std::vector<std::vector<Device>> replica_devices);
  absl::Status OpenCheckpoints();
  absl::Status StartPs(int index);
  absl::Status StartWorker(int index);
  void OnWorkerExit(int exit_code, const std::string& why);
  absl::Status StartCoordinator();

  const EmbeddedSetup setup_;
  // Of each worker; of all the same number.
  const std::vector<std::vector<Device>> replica_devices_;
  ThreadPoolExecutor executor_;
  InProcessNetwork network_;
  MemoryStore store_;
  std::unique_ptr<CheckpointFiles> checkpoint_files_;  // null: no checkpoints
  std::unique_ptr<CheckpointCatalog> catalog_;
  std::vector<std::shared_ptr<ParameterServerCore>> ps_;
  std::vector<BuiltWorker> workers_;
  std::vector<BuiltWorker> dead_;  // their threads may still run
  BuiltCoordinator coordinator_;
};

}  // namespace divvy

#endif  // DIVVY_PROGRAM_EMBEDDED_H_
