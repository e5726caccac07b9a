// The whole cluster in one process.
#ifndef DIVVY_PROGRAM_EMBEDDED_H_
#define DIVVY_PROGRAM_EMBEDDED_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "coordinator/core/blocking_coordinator.h"
#include "coordinator/core/progress_sink.h"
#include "coordinator/core/store.h"
#include "coordinator/report/reporter.h"
#include "ops/cuda/gpus.h"
#include "program/in_process_clients.h"
#include "program/main.h"
#include "ps_server/core/parameter_server_core.h"
#include "worker/core/pull_options.h"
#include "worker/core/thread_step_runner.h"
#include "worker/core/worker_core.h"

namespace divvy {

// InvalidArgument: two steps, models or data sources of one name. For every process that runs them.
absl::Status CheckRegistrations();

struct EmbeddedSetup {
  EmbeddedOptions options;
  // memory of each parameter server; who it is is filled in
  ParameterServerOptions ps;
  // Of the coordinator; seed, tasks, partitioner and placement are filled in from `options`.
  CoordinatorOptions limits;
  // Of options.gpus.
  cuda::DeviceOptions gpu_math = {};
  // Of a matrix product; 0: cores / replicas, at least 1.
  int blas_threads = 0;
  bool check_numerics = false;
  PullOptions pulls;                    // of the workers
  std::optional<ReportOptions> report;  // none: nothing is drawn
  ProgressSink* sink = nullptr;         // who is told instead; outlives the cluster
  std::optional<CheckpointId> only;     // of options.checkpoint_dir: RestoreLatest takes this one,
                                        // without slots, and none is made. None: the newest
};

// The three roles joined by in-process clients, each with the objects that it has in a cluster.
// Members go in the order that lets tasks end first.
class EmbeddedCluster {
 public:
  // As StartEmbedded.
  static absl::StatusOr<std::unique_ptr<EmbeddedCluster>> Start(const EmbeddedSetup& setup);
  ~EmbeddedCluster();  // stops all tasks

  BlockingCoordinator& coordinator() { return *coordinator_; }
  // As a signal to a chief: no more steps begin, those in flight end, a last checkpoint is made
  // where there is a directory, and the program's calls fail. Returns at once.
  void Drain() {
    core_->Drain([] {});
  }
  Reporter* reporter() { return reporter_.get(); }  // null: none
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
  struct WorkerTask {
    std::unique_ptr<ThreadStepRunner> runner;
    std::unique_ptr<DataInputOpener> inputs;
    std::shared_ptr<WorkerCore> core;
  };
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
  std::vector<WorkerTask> workers_;
  std::vector<WorkerTask> dead_;  // their threads may still run
  std::shared_ptr<CoordinatorCore> core_;
  std::shared_ptr<Reporter> reporter_;
  std::unique_ptr<BlockingCoordinator> coordinator_;
};

}  // namespace divvy

#endif  // DIVVY_PROGRAM_EMBEDDED_H_
