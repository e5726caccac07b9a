// The parameter server of a process: the core, its server, and the client of the coordinator.
#ifndef DIVVY_PS_SERVER_SERVICE_PS_TASK_H_
#define DIVVY_PS_SERVER_SERVICE_PS_TASK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/metrics.h"
#include "base/once_set.h"
#include "ps_server/core/memory_budget.h"
#include "ps_server/core/parameter_server_core.h"
#include "ps_server/service/ps_data_handler.h"
#include "ps_server/service/ps_metrics.h"
#include "ps_server/service/ps_service.h"
#include "ps_server/service/served_calls.h"
#include "rpc/data_server.h"
#include "rpc/dialer.h"
#include "task/task_server.h"

namespace divvy {

struct PsTaskOptions {
  TaskOptions task;
  // Start fills in index, incarnation, address, cluster, checkpoint_files, max_commit_bytes and
  // max_pull_bytes from the other options, and BuildPs fills in seed and build.
  ParameterServerOptions core;
  // Memory for commits that are being received. One sender may have half of it, which is also the
  // largest commit.
  int64_t commit_buffer_bytes = 512 << 20;
  // Memory for replies to pulls, while they are made and sent. One caller may have half of it. A
  // larger reply waits until its caller has no other reply in memory.
  int64_t pull_buffer_bytes = 1 << 30;
  // Empty: this server writes and reads no checkpoints.
  std::string checkpoint_dir;

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

// A parameter server task. Thread-safe.
class PsTask {
 public:
  // Listens, and starts the core, which registers with the coordinator until it is attached.
  // `on_exit` is called once, from a task of an executor, with the exit code and the reason with
  // which the process should end.
  //
  // InvalidArgument, FailedPrecondition: invalid options or certificates, or an address that cannot
  // be listened on. The caller should exit with 78.
  static absl::StatusOr<std::unique_ptr<PsTask>> Start(const PsTaskOptions& options,
                                                       OnExit on_exit);
  ~PsTask();  // stops serving and waits for running tasks

  // Ends the parameter server as after SIGTERM: tells the coordinator, completes the commits that
  // are being applied, then calls on_exit.
  void Drain();
  const std::string& address() const { return server_->address(); }
  // The status of the task (Admin.GetStatus) in one line, for the log.
  std::string StatusText() const { return server_->StatusText(); }

 private:
  explicit PsTask(const PsTaskOptions& options);
  absl::Status Listen();
  absl::Status StartCore(OnExit on_exit);
  v1::TaskStatus Status() const;
  v1::GetTracesReply Traces() const;
  void FindRows(v1::GetTableRowsRequest request, ResultCallback<v1::GetTableRowsReply> done);

  PsTaskOptions options_;
  ThreadPoolExecutor executor_;
  MemoryBudget commits_, replies_;
  MetricsRegistry registry_;
  PsMetrics metrics_{registry_};
  ServedCalls served_;
  std::unique_ptr<CheckpointFiles> checkpoint_files_;  // null: the server keeps no checkpoints
  OnceSet<ParameterServerCore> core_;
  PsService service_;
  PsDataHandler data_;
  DataServer data_server_;
  RpcDialer dialer_;
  std::unique_ptr<TaskServer> server_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_PS_TASK_H_
