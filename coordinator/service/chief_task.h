// The coordinator as a process has it: the core with its store, its server, the ways to the other
// roles, and the live line.
#ifndef DIVVY_COORDINATOR_SERVICE_CHIEF_TASK_H_
#define DIVVY_COORDINATOR_SERVICE_CHIEF_TASK_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/late.h"
#include "base/mutex.h"
#include "coordinator/core/store.h"
#include "coordinator/service/build.h"
#include "coordinator/service/coordinator_service.h"
#include "rpc/dialer.h"
#include "task/task_server.h"

namespace divvy {

// The job of a name, by which it can be found again; nullopt: "", which leaves it to chance. Pure.
std::optional<JobId> JobNamed(const std::string& name);

struct ChiefTaskOptions {
  TaskOptions task;
  // incarnation, addresses, cluster and checkpoints of its core are filled in from the others;
  // resolver, where it is null, from the task's cluster
  CoordinatorSetup setup;
  // Empty: the job is forgotten with the process.
  std::string state_dir;
  // Empty: the job keeps no checkpoints.
  std::string checkpoint_dir;
  // An operator asks the process to end: called once at most, then Drain is called here.
  std::function<void()> on_drain_asked;

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

// Thread-safe, but for the coordinator's calls, which one program makes.
class ChiefTask {
 public:
  // Opens the store, listens, begins an epoch and dials. Does not wait for the cluster:
  // coordinator().WaitUntilReady() does. InvalidArgument, FailedPrecondition: the options, the
  // certificates, the address, the state directory (exit 78). Reason::kJobOver: the store says that
  // the job has ended before.
  static absl::StatusOr<std::unique_ptr<ChiefTask>> Start(const ChiefTaskOptions& options);
  ~ChiefTask();  // says nothing more, and waits for what runs

  BlockingCoordinator& coordinator() { return *parts_.calls; }
  Reporter* reporter() { return parts_.reporter.get(); }  // null: none
  // As after SIGTERM: dispatches no more, waits for what is in flight; calls of the program then
  // end with Cancelled (Reason::kJobOver). Does not block. `drained` is called once, when the
  // process may exit.
  void Drain(std::function<void()> drained);
  // The end of a program that ended with `result`: joins, tells every task, and where a task was
  // away at that moment stays for ten seconds more, or until a Drain, so that it learns of the end
  // when it comes back and registers. Returns what the job ended with. Blocks.
  absl::Status Finish(absl::Status result);
  // Whether the store says that the job has ended, well or not: another start would change nothing.
  bool JobIsOver() const {
    return core_.Get()->Snapshot().phase == CoordinatorSnapshot::Phase::kOver;
  }
  const std::string& address() const { return server_->address(); }
  // What `divvyctl status` asks for, in one line.
  std::string StatusText() const { return server_->StatusText(); }

 private:
  // Comes once. Thread-safe.
  class Event {
   public:
    void Set();
    void Wait();  // blocks until it has come

   private:
    Mutex mu_;
    CondVar changed_;
    bool set_ DIVVY_GUARDED_BY(mu_) = false;
  };

  explicit ChiefTask(const ChiefTaskOptions& options);
  absl::Status OpenStore();
  absl::Status OpenCatalog();
  absl::Status Listen();
  absl::Status StartCore();

  OperatorCalls CallsOfOperators();
  void SaveForOperator(ResultCallback<v1::RequestCheckpointReply> done);
  void DrainForOperator(ResultCallback<v1::DrainReply> done);
  void ResizeForOperator(int num_ps, ResultCallback<v1::ResizeReply> done);
  void FillInCluster();
  void TellEvaluator(int exit_code);  // that the job is over
  bool SomebodyIsAway() const;
  void Linger();

  ChiefTaskOptions options_;
  ThreadPoolExecutor executor_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<CheckpointCatalog> catalog_;  // null: none
  Late<CoordinatorCore> core_;
  std::atomic<bool> drain_asked_{false};
  const std::shared_ptr<Event> linger_over_ = std::make_shared<Event>();
  CoordinatorService service_;
  RpcDialer dialer_;
  std::unique_ptr<TaskServer> server_;
  BuiltCoordinator parts_;  // its core is in core_
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_CHIEF_TASK_H_
