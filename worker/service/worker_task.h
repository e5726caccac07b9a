// A worker as a process has it: the core, what runs its steps, its server, and the ways to the
// other roles.
#ifndef DIVVY_WORKER_SERVICE_WORKER_TASK_H_
#define DIVVY_WORKER_SERVICE_WORKER_TASK_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/once_set.h"
#include "ops/cuda/gpus.h"
#include "rpc/dialer.h"
#include "task/task_server.h"
#include "worker/core/worker_core.h"
#include "worker/service/build.h"
#include "worker/service/worker_service.h"

namespace divvy {

struct WorkerTaskOptions {
  TaskOptions task;
  // index, incarnation, address and cluster are filled in from the task, and what BuildWorker says
  WorkerOptions core;
  // 0: one for each GPU, or one on the CPU
  int replicas = 0;
  // Where they compute.
  GpuOptions gpus;
  // Of a matrix product; 0: DefaultBlasThreads.
  int blas_threads = 0;
  // That share the cores of its machine; 0: WorkersOnHostOf.
  int workers_per_host = 0;
  // StrategyOptions::communication of the program.
  CommunicationOptions communication = {};

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

// The workers that the cluster names with the host of this one, itself among them; 1 where it does
// not name this one. Pure.
int WorkersOnHostOf(const ClusterConfig& cluster);
// The threads of a matrix product with which that many replicas of that many workers fill the
// cores, at least 1. Pure.
int DefaultBlasThreads(int cores, int workers, int replicas);

// Thread-safe.
class WorkerTask {
 public:
  // Listens and registers with the coordinator until it is attached. `on_exit` is called once, from
  // a task of an executor: the process is to end with this code, and why. InvalidArgument,
  // FailedPrecondition: the options, the GPUs, the certificates, or an address that cannot be
  // listened on (exit 78).
  static absl::StatusOr<std::unique_ptr<WorkerTask>> Start(const WorkerTaskOptions& options,
                                                           OnExit on_exit);
  // says nothing more, and waits for what runs: a step body that does not look at its context may
  // take its time
  ~WorkerTask();

  // As after SIGTERM: says so to the coordinator, finishes what it was given, then on_exit.
  void Drain();
  const std::string& address() const { return server_->address(); }
  // What `divvyctl status` asks for, in one line.
  std::string StatusText() const { return server_->StatusText(); }

 private:
  WorkerTask(const WorkerTaskOptions& options, std::vector<Device> replica_devices);
  absl::Status Listen();
  absl::Status StartCore(OnExit on_exit);

  WorkerTaskOptions options_;
  const std::vector<Device> replica_devices_;
  ThreadPoolExecutor executor_;
  OnceSet<WorkerCore> core_;
  WorkerService service_;
  RpcDialer dialer_;
  std::unique_ptr<TaskServer> server_;
  std::shared_ptr<CoordinatorClient> coordinator_;
  BuiltWorker parts_;  // its core is in core_
};

}  // namespace divvy

#endif  // DIVVY_WORKER_SERVICE_WORKER_TASK_H_
