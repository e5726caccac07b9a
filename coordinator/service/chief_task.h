// The coordinator as a process: the core with its store, its server, the connections to the other
// roles, and the live line.
#ifndef DIVVY_COORDINATOR_SERVICE_CHIEF_TASK_H_
#define DIVVY_COORDINATOR_SERVICE_CHIEF_TASK_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/completion.h"
#include "base/executor.h"
#include "base/metrics.h"
#include "base/once_set.h"
#include "coordinator/core/coordinator_metrics.h"
#include "coordinator/core/store.h"
#include "coordinator/service/build.h"
#include "coordinator/service/coordinator_service.h"
#include "coordinator/service/task_poll.h"
#include "protocol/trace_log.h"
#include "rpc/dialer.h"
#include "task/task_server.h"

namespace divvy {

// The id of the job with this name. The same name always gives the same id, so a job can be found
// again. Nullopt for "": the id is random. Pure.
std::optional<JobId> JobNamed(const std::string& name);

// The options of the process.
struct ChiefTaskOptions {
  TaskOptions task;
  // These members of its core are filled in from the other options: incarnation, addresses, cluster
  // and checkpoints. A null resolver is filled in from the task's cluster.
  CoordinatorSetup setup;
  // The directory of the store. Empty: the job is forgotten when the process ends.
  std::string state_dir;
  // Empty: the job keeps no checkpoints.
  std::string checkpoint_dir;
  // Called at most once, when an operator asks the process to end. The core is drained right after
  // the call. The callee does the rest of what SIGTERM does, including ChiefTask::Drain.
  std::function<void()> on_drain_asked;

  // InvalidArgument that lists every problem. Pure.
  absl::Status Validate() const;
};

// The running process. Thread-safe, except that only one program may make the coordinator's calls.
class ChiefTask {
 public:
  // Opens the store, listens, begins an epoch and dials. Blocks on the disk. Does not wait for the
  // cluster: coordinator().WaitUntilReady() does.
  //
  // InvalidArgument, FailedPrecondition: the options, the certificates, the address or the state
  // directory cannot be used (exit 78). Reason::kJobOver: the store says that the job has ended
  // before; the service manager is told READY=1, since the process has nothing to do and may exit
  // with 0. Other errors are those of CoordinatorCore::Start.
  static absl::StatusOr<std::unique_ptr<ChiefTask>> Start(const ChiefTaskOptions& options);
  // Sends nothing more, and waits for running tasks.
  ~ChiefTask();

  // The calls of the program. The reference is valid as long as this object lives.
  BlockingCoordinator& coordinator() { return *parts_.calls; }
  // Null: no progress is drawn.
  Reporter* reporter() { return parts_.reporter.get(); }
  // Does what SIGTERM does: dispatches nothing more and lets the steps in flight finish. Then calls
  // of the program end with Cancelled (Reason::kJobOver), and `drained` is called once: the process
  // may exit. Does not block.
  void Drain(std::function<void()> drained);
  // Ends the job after the program has returned `result`. If `result` is OK, waits for queued
  // steps. Then tells every task to exit, and records the end for an evaluator. If a known task was
  // not connected when Finish was called, waits ten more seconds, or until a Drain, so that the
  // task learns of the end when it registers again. Returns the status that the job ended with.
  // Blocks.
  absl::Status Finish(absl::Status result);
  // Whether the store says that the job has ended, successfully or not. A restart would then change
  // nothing.
  bool JobIsOver() const {
    return core_.Get()->Snapshot().phase == CoordinatorSnapshot::Phase::kOver;
  }
  // Where the server listens.
  const std::string& address() const { return server_->address(); }
  // The answer to `divvyctl status`, in one line.
  std::string StatusText() const { return server_->StatusText(); }

 private:
  explicit ChiefTask(const ChiefTaskOptions& options);
  // The steps of Start, in this order.
  absl::Status OpenStore();
  absl::Status OpenCatalog();
  absl::Status Listen();
  absl::Status StartCore();
  void StartPoll();
  v1::TaskStatus Status() const;
  v1::GetTracesReply Traces() const;

  // The calls that an operator may make, with divvyctl or the Admin service.
  OperatorCalls CallsOfOperators();
  void SaveForOperator(ResultCallback<v1::RequestCheckpointReply> done);
  void DrainForOperator(ResultCallback<v1::DrainReply> done);
  void ResizeForOperator(int num_ps, ResultCallback<v1::ResizeReply> done);
  void RebalanceForOperator(ResultCallback<v1::RebalanceReply> done);
  void FillInCluster();
  // Records for an evaluator that the job is over.
  void TellEvaluator(int exit_code);
  // Whether a known worker or ps is not connected.
  bool AnyTaskAway() const;
  // Waits ten seconds, or until a Drain. Blocks.
  void Linger();

  ChiefTaskOptions options_;
  ThreadPoolExecutor executor_;
  MetricsRegistry registry_;
  CoordinatorMetrics metrics_{registry_};
  TraceLog traces_;
  std::unique_ptr<Store> store_;
  // Null: the job keeps no checkpoints.
  std::unique_ptr<CheckpointCatalog> catalog_;
  OnceSet<CoordinatorCore> core_;
  std::atomic<bool> drain_asked_{false};
  const std::shared_ptr<Completion<bool>> linger_over_ = std::make_shared<Completion<bool>>();
  CoordinatorService service_;
  RpcDialer dialer_;
  // Set with the core.
  OnceSet<TaskPoll> poll_;
  std::unique_ptr<TaskServer> server_;
  // Its core is also in core_.
  BuiltCoordinator parts_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_CHIEF_TASK_H_
