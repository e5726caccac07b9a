// The worker of a process: the core, the runner of its steps, its server, and the clients of the
// other roles.
#ifndef DIVVY_WORKER_SERVICE_WORKER_TASK_H_
#define DIVVY_WORKER_SERVICE_WORKER_TASK_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/metrics.h"
#include "base/once_set.h"
#include "ops/cuda/gpus.h"
#include "protocol/trace_log.h"
#include "rpc/dialer.h"
#include "task/task_server.h"
#include "worker/core/worker_core.h"
#include "worker/core/worker_metrics.h"
#include "worker/service/build.h"
#include "worker/service/worker_service.h"

namespace divvy {

struct WorkerTaskOptions {
  TaskOptions task;
  // Start fills in index, incarnation, address and cluster from the task, metrics and traces;
  // BuildWorker fills in replicas, seed and build.
  WorkerOptions core;
  // Number of replicas. 0: one for each GPU, or one on the CPU.
  int replicas = 0;
  // The GPUs of the replicas.
  GpuOptions gpus;
  // Threads of a matrix product. 0: DefaultBlasThreads.
  int blas_threads = 0;
  // Number of workers that share the cores of this machine. 0: WorkersOnHostOf.
  int workers_per_host = 0;
  // StrategyOptions::communication of the program.
  CommunicationOptions communication = {};

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

// Number of workers in the cluster spec that have the same host as this one, itself included. 1 if
// the cluster spec does not name this worker. Pure.
int WorkersOnHostOf(const ClusterConfig& cluster);
// Threads of a matrix product with which `replicas` replicas of each of `workers` workers fill
// `cores` cores; at least 1. Pure.
int DefaultBlasThreads(int cores, int workers, int replicas);

// A worker task. Thread-safe.
class WorkerTask {
 public:
  // Listens, and starts the core, which registers with the coordinator until it is attached.
  // `on_exit` is called once, from a task of an executor, with the exit code and the reason with
  // which the process should end.
  //
  // InvalidArgument, FailedPrecondition: invalid options, GPUs or certificates, or an address that
  // cannot be listened on. The caller should exit with 78.
  static absl::StatusOr<std::unique_ptr<WorkerTask>> Start(const WorkerTaskOptions& options,
                                                           OnExit on_exit);
  // Drops all connections and waits for running tasks. A step function that does not look at
  // WorkerContext::cancelled may delay this.
  ~WorkerTask();

  // Ends the worker as after SIGTERM: tells the coordinator, finishes the steps that the worker has
  // been given, then calls on_exit.
  void Drain();
  const std::string& address() const { return server_->address(); }
  // The status of the task (Admin.GetStatus) in one line, for the log.
  std::string StatusText() const { return server_->StatusText(); }

 private:
  WorkerTask(const WorkerTaskOptions& options, std::vector<Device> replica_devices);
  absl::Status Listen();
  absl::Status StartCore(OnExit on_exit);

  WorkerTaskOptions options_;
  const std::vector<Device> replica_devices_;
  ThreadPoolExecutor executor_;
  MetricsRegistry registry_;
  WorkerMetrics metrics_{registry_};
  TraceLog traces_;
  OnceSet<WorkerCore> core_;
  WorkerService service_;
  RpcDialer dialer_;
  std::unique_ptr<TaskServer> server_;
  std::shared_ptr<CoordinatorClient> coordinator_;
  BuiltWorker parts_;  // without its core, which is in core_
};

}  // namespace divvy

#endif  // DIVVY_WORKER_SERVICE_WORKER_TASK_H_
