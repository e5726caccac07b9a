// A parameter server as a process has it: the core, its server, and the way to the coordinator.
#ifndef DIVVY_PS_SERVER_SERVICE_PS_TASK_H_
#define DIVVY_PS_SERVER_SERVICE_PS_TASK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/once_set.h"
#include "ps_server/core/memory_budget.h"
#include "ps_server/core/parameter_server_core.h"
#include "ps_server/service/ps_data_handler.h"
#include "ps_server/service/ps_service.h"
#include "rpc/data_server.h"
#include "rpc/dialer.h"
#include "task/task_server.h"

namespace divvy {

struct PsTaskOptions {
  TaskOptions task;
  // index, incarnation, address, cluster, checkpoint_files, max_commit_bytes and max_pull_bytes are
  // filled in from the others, and what BuildPs says
  ParameterServerOptions core;
  // Of commits being received; a task may have half, which is also the largest commit.
  int64_t commit_buffer_bytes = 512 << 20;
  // Of replies to pulls being made and sent; a task may have half. A larger one waits until it is
  // alone.
  int64_t pull_buffer_bytes = 1 << 30;
  // Empty: this server writes and reads no checkpoints.
  std::string checkpoint_dir;

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

// Thread-safe.
class PsTask {
 public:
  // Listens and registers with the coordinator until it is attached. `on_exit` is called once, from
  // a task of an executor: the process is to end with this code, and why. InvalidArgument,
  // FailedPrecondition: the options, the certificates, or an address that cannot be listened on
  // (exit 78).
  static absl::StatusOr<std::unique_ptr<PsTask>> Start(const PsTaskOptions& options,
                                                       OnExit on_exit);
  ~PsTask();  // stops serving and waits for what runs

  // As after SIGTERM: says so to the coordinator, ends what is being applied, then on_exit.
  void Drain();
  const std::string& address() const { return server_->address(); }
  // What `divvyctl status` asks for, in one line.
  std::string StatusText() const { return server_->StatusText(); }

 private:
  explicit PsTask(const PsTaskOptions& options);
  absl::Status Listen();
  absl::Status StartCore(OnExit on_exit);

  PsTaskOptions options_;
  ThreadPoolExecutor executor_;
  MemoryBudget commits_, replies_;
  std::unique_ptr<CheckpointFiles> checkpoint_files_;  // null: none
  OnceSet<ParameterServerCore> core_;
  PsService service_;
  PsDataHandler data_;
  DataServer data_server_;
  RpcDialer dialer_;
  std::unique_ptr<TaskServer> server_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_PS_TASK_H_
