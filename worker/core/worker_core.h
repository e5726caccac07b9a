// The worker without a network. It takes steps from the coordinator, runs them, and sends their
// staged writes to the parameter servers, once.
//
// An event-driven state machine (docs/internals/architecture.md; protocol sections 5, 7, 9). Each
// method takes an event, changes state under one lock, and never waits. The effects of an event are
// carried out after the lock has been released, in the order in which they were decided. Step
// functions and data may block, so they lie behind StepRunner and InputOpener.
//
//   state of the session
//     DETACHED     no session; the worker registers every 2 s
//     ATTACHED     idle, or a step is live
//     SILENT       attached, but nothing heard from the coordinator for 5 s: the worker begins no
//                  step, and registers
//
//   state of the step
//     RUNNING      the function runs, reads and stages
//     BEHIND       the function has returned; the previous step still commits
//     NEEDS SLOTS  the function has returned; the coordinator creates an optimizer's slots
//     PLANNING     the writes are being cut, sorted and summed, without the core's lock
//     HELD         the plan is ready; a checkpoint is being cut, and the step waits for its Release
//     COMMITTING   one commit is in flight to each ps that the step writes to, and is retried until
//                  the ps answers. From here on the step cannot fail, be cancelled or be given up
//
// The steps of a session run one after another: a step sees the writes of the steps before it,
// unless PullOptions say otherwise. With a pipeline_depth of more than 1, a step may run while the
// previous step commits; it commits after the previous step has been reported. A report is never
// sent while a commit of its step is unanswered. Reports are sent in the order of the steps, with
// one exception: a step that sends no commit (a cancelled one, or one that has lost its GPU) is
// reported without waiting for the previous step.
#ifndef DIVVY_WORKER_CORE_WORKER_CORE_H_
#define DIVVY_WORKER_CORE_WORKER_CORE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "base/outbox.h"
#include "protocol/backoff.h"
#include "protocol/clients.h"
#include "protocol/messages.h"
#include "protocol/registrar.h"
#include "protocol/request_check.h"
#include "protocol/resumable_stream.h"
#include "protocol/trace_log.h"
#include "worker/core/planned_commit.h"
#include "worker/core/pull_options.h"
#include "worker/core/read_set.h"
#include "worker/core/step_runner.h"
#include "worker/core/step_transaction.h"
#include "worker/core/worker_metrics.h"

namespace divvy {

struct WorkerOptions {
  // Index of this worker in the cluster spec; >= 0.
  int index = 0;
  // Random number of this process; not 0.
  Incarnation incarnation;
  // The address at which the coordinator can dial this worker; not empty.
  std::string address;
  // Number of replicas: one for each GPU, or 1 on the CPU.
  int replicas = 1;
  // The cluster as this task's TF_CONFIG describes it. The coordinator compares it with its own.
  // May be empty.
  ClusterView cluster;
  // Version and commit of the binary, for messages; may be empty.
  std::string build;
  // The program that this worker runs. The coordinator compares it with its own. May be empty.
  ProgramDescription program;
  // Sets the program's own flags to the values with which the coordinator was started. The core
  // calls it at the first Attach, before any step, and again if a later Attach brings other flags
  // (of a restarted coordinator). It is called under the core's lock, so it must not block and must
  // not call the core. An error refuses that Attach (FailedPrecondition); the next Attach calls it
  // again. Empty: the program has no flags.
  std::function<absl::Status(const std::map<std::string, std::string>&)> apply_program_flags;
  // If true, a step that stages a non-finite float32 or float64 fails with InvalidArgument, which
  // names the variable.
  bool check_numerics = false;
  PullOptions pulls;
  // Commits and pulls of fewer bytes are planned and assembled at once, under the lock; larger ones
  // on other threads. >= 0.
  int64_t at_once_bytes = 256 << 10;
  // The most bytes that a step may return (Nest::size_bytes). A step that returns more fails with
  // InvalidArgument.
  int64_t max_value_bytes = 16 << 20;
  // Where the core notes what it measures. Null: nowhere. REQUIRES: outlives the core and its
  // tasks.
  WorkerMetrics* metrics = nullptr;
  // Where the core notes the times of steps whose trace the coordinator wants. Null: nowhere.
  // REQUIRES: as metrics.
  TraceLog* traces = nullptr;
  // Seed of the jitter in waits before retries.
  uint64_t seed = 1;
  // Interval between calls of Register while the worker is detached or silent.
  absl::Duration register_every = absl::Seconds(2);
  // If the coordinator has been silent for this long, the worker begins no new step.
  absl::Duration coordinator_silence = absl::Seconds(5);
  // If the coordinator has been silent for this long, the process exits with 138.
  absl::Duration orphan_timeout = absl::Hours(1);
  // How long a shutdown, or a drain without a coordinator, waits for commits in flight.
  absl::Duration drain_timeout = absl::Seconds(10);

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

// State of a worker at one moment, for the status page and tests.
struct WorkerSnapshot {
  enum class Step : uint8_t {
    kNone,
    // The function runs, or has not yet noticed that the step is cancelled.
    kRunning,
    // The function has returned, and the previous step still commits.
    kBehind,
    // The function has returned, and the step waits for an optimizer's slots.
    kNeedsSlots,
    // The function has returned, and the commit is being planned.
    kPlanning,
    // The commit is planned, but a checkpoint is being cut: the step waits for the Release.
    kHeld,
    // The commits are in flight: the step can no longer fail.
    kCommitting,
  };
  JobId job;  // 0: never attached
  bool attached = false;
  // Attached, but the coordinator has been silent for coordinator_silence.
  bool silent = false;
  // A Steps stream is open.
  bool connected = false;
  Epoch epoch;
  SessionId session;  // the live session, if attached
  uint64_t layout_version = 0;
  Step step = Step::kNone;
  // The newest step that has begun and has not been reported.
  std::optional<EntryId> live;
  // Function of the live step.
  std::string live_function;
  // Ordinal of the live step, if it is a training step.
  std::optional<int64_t> live_ordinal;
  // Steps that have not begun, in order.
  std::vector<EntryId> queued;
  // The queued steps whose variables are being prefetched, or have been.
  std::vector<EntryId> ahead;
  // A checkpoint is being cut: no commit begins.
  bool held = false;
  // The step whose commits are in flight: the live step, or the one before it.
  std::optional<EntryId> committing;
  // The ps that have not answered a commit of `committing`.
  std::vector<int> unanswered;
  std::set<ResourceId> resources;
  size_t unacknowledged = 0;  // sent messages of the Steps stream
  int64_t reported = 0;       // steps, in the life of this process
};

// Thread-safe; no method waits.
class WorkerCore : public StepsAcceptor, public std::enable_shared_from_this<WorkerCore> {
 public:
  // Starts the core. If `coordinator` is not null, the core registers with it until a session
  // begins; null is for a coordinator that knows the address of this worker already.
  //
  // `on_exit` is called once, with the exit code of the process, when
  //   - the job is over, or the coordinator refuses this task for good (registrar.h);
  //   - no coordinator has been heard for orphan_timeout (138);
  //   - a step has found that a GPU of this process is lost (138). That step and the queued ones go
  //     back to the coordinator;
  //   - a Drain is complete (143).
  //
  // InvalidArgument: `options` are invalid. REQUIRES: the references and `coordinator` outlive the
  // core and all its tasks.
  static absl::StatusOr<std::shared_ptr<WorkerCore>> Start(
      WorkerOptions options, Executor& executor, Clock& clock, StepRunner& runner,
      InputOpener& inputs, Dialer& dialer, CoordinatorClient* coordinator, OnExit on_exit);
  ~WorkerCore() override;
  WorkerCore(const WorkerCore&) = delete;

  // ---- from the coordinator: any number of calls at once; each request may arrive twice, late or
  // never. `done` is called once, perhaps before the call returns ----

  // Begins the session `request.fence.session`, and drops everything of an older session: steps,
  // commits in flight, iterators. (The coordinator sends this only after every ps has fenced the
  // older session.) A repeated request changes nothing.
  //
  // Errors: those of the request check (protocol/request_check.h); kSessionFenced if the session is
  // older than the newest one, or has ended here; kVersionMismatch; kInvalid if the request has no
  // session or no layout; kJobOver if this worker is ending; FailedPrecondition if the program
  // refuses the flags.
  void Call(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done);
  // Begins no further step, waits for a commit in flight (at most drain_timeout), drops the rest,
  // then calls on_exit. The request is answered at once.
  void Call(ShutdownRequest request, ResultCallback<ShutdownReply> done);
  // Accepts a connection of the Steps stream. The first frame names the session of the connection.
  // A connection whose session is not live is closed.
  std::shared_ptr<StreamListener<ToWorker>> Accept(
      std::shared_ptr<StreamConnection<FromWorker>> connection) override;

  // ---- from its own process ----

  // The process was asked to end (SIGTERM). Tells the coordinator, finishes the steps that the
  // worker has been given, then calls on_exit with 143. If the coordinator is silent, the worker
  // finishes only the commits in flight, for at most drain_timeout.
  void Drain();
  // Drops all timers, completions and connections. No call is answered any more, and on_exit is not
  // called. A running step is cancelled, so that its thread ends. For a process about to end, and
  // for the simulation's kill. The destructor does the same.
  void Abandon();

  WorkerSnapshot Inspect() const;
  // Hash of all state that a message can change. A message that is refused, or that has been
  // received before, leaves the hash as it is.
  uint64_t StateHash() const;

 private:
  // One commit of the committing step, to one ps.
  struct Commit {
    CommitRequest request;
    Backoff backoff;
    absl::Duration since;                // time of the first send
    std::optional<absl::Status> answer;  // OK, or the ps' refusal
    absl::Duration took = {};            // until the answer
    absl::Duration served = {};          // CommitReply::served
  };
  struct LiveStep {
    LiveStep(Dispatch dispatch, std::shared_ptr<WorkerTransaction> transaction,
             std::set<std::string> missed)
        : dispatch(std::move(dispatch)),
          transaction(std::move(transaction)),
          missed(std::move(missed)) {}
    Dispatch dispatch;
    std::shared_ptr<WorkerTransaction> transaction;
    // Variables that earlier steps of this session write to, and that this step may have read
    // without those writes.
    std::set<std::string> missed;
    // The step's data was prefetched.
    bool reads_ahead = false;
    WorkerSnapshot::Step state = WorkerSnapshot::Step::kRunning;
    bool cancelled = false;
    absl::StatusOr<Nest> result = Nest();  // of the function
    StepRecord record;
    std::vector<EndedInput> ended;
    std::shared_ptr<const CommitWork> planning;  // input of the plan that is being made
    // The newest plan; BeginCommit moves its parts into `commits`.
    std::optional<PlannedCommit> plan;
    std::map<int, Commit> commits;  // by ps
    uint64_t staleness = 0;
    // When the Dispatch arrived, the function began, and it had returned.
    absl::Duration arrived, began, computed;
  };
  // A step that waits for the steps before it.
  struct QueuedStep {
    Dispatch dispatch;
    // The transaction that prefetches variables; null if nothing is prefetched.
    std::shared_ptr<WorkerTransaction> ahead;
    // The variables that `ahead` pulls.
    std::vector<std::string> pulled;
    // Those of `pulled` that steps of this session have written to since.
    std::set<std::string> missed;
    // The data is being prefetched, or has been.
    bool reads_ahead = false;
    // The values that `ahead` pulls are copied to the GPUs where the step will compute.
    bool copies_ahead = false;
    absl::Duration arrived = {};
  };
  struct Session {
    explicit Session(SessionId id) : stream(id) {}
    std::shared_ptr<const SessionLinks> links;
    std::shared_ptr<const Layout> layout;
    uint64_t job_seed = 0;
    ResumableStream<FromWorker, ToWorker> stream;
    std::optional<uint64_t> connection;  // the connection that carries the stream
    uint64_t unanswered_messages = 0;    // messages received since the last frame was sent
    absl::Duration last_heard;
    std::deque<QueuedStep> queue;
    // The step that has begun, until it commits.
    std::optional<LiveStep> live;
    // The step whose commits are in flight. Only one step commits at a time, so meanwhile the live
    // step runs or is kBehind.
    std::optional<LiveStep> committing;
    // The steps that have begun since that one. More than one if some of them sent nothing.
    int begun_since = 0;
    std::set<ResourceId> resources;
    std::optional<uint64_t> hold;  // number of the Hold; no commit begins before its Release
    bool hold_answered = false;
  };
  class Listener;

  WorkerCore(WorkerOptions options, Executor& executor, Clock& clock, StepRunner& runner,
             InputOpener& inputs, Dialer& dialer, OnExit on_exit);

  // worker_core.cc: life and sessions
  void Tick();
  void ScheduleTick() DIVVY_REQUIRES(mu_);
  void RegisterIfWanted() DIVVY_REQUIRES(mu_);
  void OnJobOver(int exit_code, std::string why);
  ReceiverState Receiver() const DIVVY_REQUIRES(mu_);
  absl::Status CheckFence(const Fence& fence, CallKind call) const DIVVY_REQUIRES(mu_);
  absl::Status CheckAttach(const WorkerAttachRequest& request) const DIVVY_REQUIRES(mu_);
  absl::Status ApplyFlags(const WorkerAttachRequest& request) DIVVY_REQUIRES(mu_);
  void BeginSession(WorkerAttachRequest request) DIVVY_REQUIRES(mu_);
  void EndSession() DIVVY_REQUIRES(mu_);
  void OnSessionOver(const std::weak_ptr<Session>& session, const absl::Status& why);
  void SessionOver(const absl::Status& why) DIVVY_REQUIRES(mu_);
  void BeginDrain(int exit_code, std::string why) DIVVY_REQUIRES(mu_);
  void EndIfDrained() DIVVY_REQUIRES(mu_);
  void End(int exit_code, std::string why) DIVVY_REQUIRES(mu_);
  bool Silent() const DIVVY_REQUIRES(mu_);
  bool Unheard() const DIVVY_REQUIRES(mu_);

  // worker_core.cc: the Steps stream
  void OnFrames(uint64_t connection, std::vector<StreamFrame<ToWorker>> frames);
  void OnFrame(uint64_t connection, StreamFrame<ToWorker> frame) DIVVY_REQUIRES(mu_);
  void OnBroken(uint64_t connection);
  bool BindConnection(uint64_t connection, const StreamFrame<ToWorker>& frame) DIVVY_REQUIRES(mu_);
  void Disconnect(uint64_t connection) DIVVY_REQUIRES(mu_);
  void Send(FromWorker message) DIVVY_REQUIRES(mu_);
  void SendFrame(StreamFrame<FromWorker> frame) DIVVY_REQUIRES(mu_);

  // worker_core.cc: the coordinator's messages on that stream
  void Handle(LayoutUpdate message) DIVVY_REQUIRES(mu_);
  void Handle(Dispatch message) DIVVY_REQUIRES(mu_);
  void Handle(CancelSteps message) DIVVY_REQUIRES(mu_);
  void GiveBack(QueuedStep step) DIVVY_REQUIRES(mu_);
  void Handle(MakeResource message) DIVVY_REQUIRES(mu_);
  void Handle(DropResource message) DIVVY_REQUIRES(mu_);
  void Handle(Ping message) DIVVY_REQUIRES(mu_);
  std::optional<PsWait> LongestWait() const DIVVY_REQUIRES(mu_);
  void Handle(Hold message) DIVVY_REQUIRES(mu_);
  void Handle(Release message) DIVVY_REQUIRES(mu_);
  void OnOpened(const std::weak_ptr<Session>& session, ResourceId iterator,
                absl::StatusOr<OpenedInput> opened);

  // live_step.cc: from dispatch to report
  void StartNext() DIVVY_REQUIRES(mu_);
  bool MayBegin(const Dispatch& next) const DIVVY_REQUIRES(mu_);
  void StartStep(QueuedStep next) DIVVY_REQUIRES(mu_);
  uint64_t SeedOf(const Dispatch& dispatch) const DIVVY_REQUIRES(mu_);
  std::shared_ptr<WorkerTransaction> OpenTransaction(const Dispatch& dispatch) DIVVY_REQUIRES(mu_);
  void PullAhead() DIVVY_REQUIRES(mu_);
  void CopyAhead(QueuedStep& step) DIVVY_REQUIRES(mu_);
  void PullAhead(QueuedStep& step) DIVVY_REQUIRES(mu_);
  void ReadAhead(QueuedStep& step) DIVVY_REQUIRES(mu_);
  void ForgetData(const Dispatch& dispatch) DIVVY_REQUIRES(mu_);
  void DropPrefetched(QueuedStep& step) DIVVY_REQUIRES(mu_);
  void DropPrefetched() DIVVY_REQUIRES(mu_);
  void ForgetReads() DIVVY_REQUIRES(mu_);
  void AgePrefetched(const LiveStep& ended) DIVVY_REQUIRES(mu_);
  void CancelLive() DIVVY_REQUIRES(mu_);
  void OnFunctionDone(const std::weak_ptr<Session>& session, EntryId step, StepRecord record,
                      StepEnd end);
  void FunctionEnded() DIVVY_REQUIRES(mu_);
  void FunctionFailed(absl::Status status) DIVVY_REQUIRES(mu_);
  void LoseDevice(absl::Status why) DIVVY_REQUIRES(mu_);
  void FunctionSucceeded() DIVVY_REQUIRES(mu_);
  absl::Status CheckAssigned(const std::set<std::string>& assigned) const DIVVY_REQUIRES(mu_);
  void CommitIfSlotsExist() DIVVY_REQUIRES(mu_);
  void PlanLiveCommit() DIVVY_REQUIRES(mu_);
  void OnPlanned(const std::weak_ptr<Session>& session, EntryId step, const CommitWork* work,
                 PlannedCommit plan);
  void BeginCommit() DIVVY_REQUIRES(mu_);
  void AnswerHold() DIVVY_REQUIRES(mu_);
  void SendCommit(int ps) DIVVY_REQUIRES(mu_);
  void SendCommitAgain(const std::weak_ptr<Session>& session, EntryId step, int ps);
  void OnCommitReply(const std::weak_ptr<Session>& session, EntryId step, int ps,
                     absl::StatusOr<CommitReply> reply);
  void MeasureStaleness(const Commit& commit, const CommitReply& reply) DIVVY_REQUIRES(mu_);
  StepTrace TraceOf(LiveStep& step) const;
  void Trace(LiveStep& step, Report& report) const DIVVY_REQUIRES(mu_);
  void Measure(const LiveStep& step, const Report& report) const DIVVY_REQUIRES(mu_);
  void EndCommitIfAnswered() DIVVY_REQUIRES(mu_);
  void ReportLive(StepOutcome outcome, absl::Status error) DIVVY_REQUIRES(mu_) {
    ReportStep(session_->live, outcome, std::move(error));
  }
  void ReportStep(std::optional<LiveStep>& ended, StepOutcome outcome, absl::Status error)
      DIVVY_REQUIRES(mu_);
  // The live step, or the committing one, if it is `step` of `session`; else null. So a late event
  // of another step is dropped.
  LiveStep* Live(const std::weak_ptr<Session>& session, EntryId step) DIVVY_REQUIRES(mu_);
  LiveStep* Committing(const std::weak_ptr<Session>& session, EntryId step) DIVVY_REQUIRES(mu_);

  const WorkerOptions options_;
  Executor& executor_;
  Clock& clock_;
  StepRunner& runner_;
  InputOpener& inputs_;
  Dialer& dialer_;

  Outbox outbox_;
  mutable Mutex mu_;  // taken before the lock of a WorkerTransaction
  OnExit on_exit_ DIVVY_GUARDED_BY(mu_);
  // The program's flags from the last Attach.
  std::optional<std::map<std::string, std::string>> applied_flags_ DIVVY_GUARDED_BY(mu_);
  bool over_ DIVVY_GUARDED_BY(mu_) = false;
  std::optional<int> shutdown_code_ DIVVY_GUARDED_BY(mu_);  // of a Shutdown that waits for a commit
  absl::Duration shutdown_since_ DIVVY_GUARDED_BY(mu_);
  // Set when the worker drains: it finishes the steps that it has been given, then ends.
  struct Ending {
    int exit_code = 0;
    std::string why;
    // false: a GPU is lost, so queued steps go back to the coordinator
    bool can_compute = true;
    absl::Duration since;
  };
  std::optional<Ending> draining_ DIVVY_GUARDED_BY(mu_);
  // The job, the newest epoch with its coordinator, and the newest session in that epoch.
  Fence known_ DIVVY_GUARDED_BY(mu_);
  // Null: detached.
  std::shared_ptr<Session> session_ DIVVY_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<StreamConnection<FromWorker>>> connections_
      DIVVY_GUARDED_BY(mu_);
  uint64_t next_connection_ DIVVY_GUARDED_BY(mu_) = 1;
  ReadSets read_sets_ DIVVY_GUARDED_BY(mu_);
  // Time of the coordinator's last message to this worker.
  absl::Duration last_contact_ DIVVY_GUARDED_BY(mu_);
  // Null: there is no coordinator to register with.
  std::shared_ptr<Registrar> registrar_ DIVVY_GUARDED_BY(mu_);
  int64_t reported_ DIVVY_GUARDED_BY(mu_) = 0;
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_WORKER_CORE_H_
