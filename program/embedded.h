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

// InvalidArgument: two steps, models or data sources have the same name. Every process that runs
// them calls this at start.
absl::Status CheckRegistrations();

// The options of all roles of the cluster. A plain value.
struct EmbeddedSetup {
  EmbeddedOptions options;
  // Options of each parameter server; index, incarnation and address are filled in.
  ParameterServerOptions ps;
  // Options of each worker; index, incarnation and address are filled in.
  WorkerOptions worker;
  // Options of the coordinator; seed, tasks, strategy, resolver and replicas come from `options`.
  CoordinatorSetup coordinator;
  // For the GPUs of options.gpus.
  cuda::DeviceOptions gpu_math = {};
  // Threads of a matrix product. 0: cores / replicas, at least 1.
  int blas_threads = 0;
  // A checkpoint of options.checkpoint_dir: RestoreLatest restores this one, without optimizer
  // slots, and the cluster makes no checkpoints. nullopt: the newest.
  std::optional<CheckpointId> only;
};

// The three roles, connected by in-process clients. Each role is made of the same objects as in a
// cluster of processes. Members are declared in an order that lets tasks end before the objects
// that they use are destroyed. Not thread-safe, except for what coordinator() returns and Drain.
class EmbeddedCluster {
 public:
  // As StartEmbedded: blocks until the cluster is ready, with the same errors.
  static absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Start(const EmbeddedSetup& setup);
  ~EmbeddedCluster();  // stops all tasks; blocks until they have ended

  BlockingCoordinator& coordinator() { return *coordinator_.calls; }
  // Does what a signal does to a chief: no more steps begin, the steps in flight finish, a last
  // checkpoint is made if there is a directory, and calls of the program fail. Returns at once.
  void Drain() {
    coordinator_.core->Drain([] {});
  }
  // Null: there is none.
  Reporter* reporter() { return coordinator_.reporter.get(); }
  // For tests. Kill removes the task as if its process were killed. Restart begins a new
  // incarnation, and kills the old one first if it still runs.
  void KillWorker(int index);
  absl::Status RestartWorker(int index);
  void KillPs(int index);
  // The new parameter server is empty.
  absl::Status RestartPs(int index);
  // Makes the parameter server unreachable until HealPs.
  void CutPs(int index);
  void HealPs(int index);  // REQUIRES: it has not been killed
  // How much state each role holds, for tests that look for leaks: the coordinator's Sizes, and
  // figures of Inspect for parameter servers and workers, each from the task with the largest one.
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
  // One list for each worker, all of the same length.
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
