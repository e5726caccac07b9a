// The worker without a network: takes steps from the coordinator, runs them, and sends what they
// staged to the parameter servers, once.
//
// An event-driven state machine (docs/internals/architecture.md; protocol sections 5, 7, 9): each
// method takes an event, changes state under one lock, never waits, and what follows from it is
// carried out when the lock is free again, in the order decided. Step bodies and data, which may
// block, lie behind StepRunner and InputOpener.
//
//   state of the session                    state of the step
//     DETACHED   registers every 2 s          RUNNING      the function runs, reads and stages
//     IDLE, or a step is live                 BEHIND       it is over; the step before it still
//                                             commits
//     SILENT     nothing heard for 5 s:       NEEDS SLOTS  it is over; an optimizer's slots are
//                being made starts nothing, registers    PLANNING     its commit is being cut,
//                sorted and summed, without the core's lock
//                                             COMMITTING   one commit to each ps touched, sent
//                                                          again until it is answered: from here it
//                                                          cannot fail, be cancelled or be given up
//
// Steps of a session run one after another: a step sees the finished writes of those before it,
// unless PullOptions say otherwise. With a pipeline_depth of more than 1 a step may run while the
// one before it commits; it commits when that one has been reported. A report is never sent while a
// commit of its step is unanswered. Reports are in the order of the steps, but for those of steps
// that send nothing: a cancelled step, or one that has lost its GPU, does not wait.
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
#include "worker/core/planned_commit.h"
#include "worker/core/pull_options.h"
#include "worker/core/read_set.h"
#include "worker/core/row_cache.h"
#include "worker/core/step_runner.h"
#include "worker/core/step_transaction.h"

namespace divvy {

struct WorkerOptions {
  // Of the task.
  int index = 0;
  // Of this process life; not 0.
  Incarnation incarnation;
  // Where the coordinator can dial it; not empty.
  std::string address;
  // GPUs, or 1
  int replicas = 1;
  // What its TF_CONFIG says, for the coordinator to compare; may be empty.
  ClusterView cluster;
  // version and commit of the binary, for messages; may be empty
  std::string build;
  // What it runs, for the coordinator to compare; may be empty.
  ProgramDescription program;
  // Takes in the program's own flags, as the coordinator was started with: called at the first
  // Attach, before any step, and again where a later one brings others (a coordinator that was
  // started anew); under the core's lock, so it does not block and does not call the core. An error
  // refuses that Attach (FailedPrecondition), and it is called again at the next. Empty: this
  // program has none.
  std::function<absl::Status(const std::map<std::string, std::string>&)> apply_program_flags;
  // A step that stages a float32 or float64 that is not finite fails with InvalidArgument, which
  // names the variable.
  bool check_numerics = false;
  PullOptions pulls;
  // commits and pulls whose rows take less are planned and assembled at once, others on threads; >=
  // 0
  int64_t at_once_bytes = 256 << 10;
  // Of what a step returns (Nest::size_bytes); more is the step's error, InvalidArgument.
  int64_t max_value_bytes = 16 << 20;
  // Of the jitter of its waits.
  uint64_t seed = 1;
  // While no session lives.
  absl::Duration register_every = absl::Seconds(2);
  // Nothing heard for so long: no new step is begun.
  absl::Duration coordinator_silence = absl::Seconds(5);
  // Nothing heard for so long: exit 138.
  absl::Duration orphan_timeout = absl::Hours(1);
  // What a shutdown, and a drain without a coordinator, waits for commits under way.
  absl::Duration drain_timeout = absl::Seconds(10);

  // InvalidArgument with every problem at once.
  absl::Status Validate() const;
};

// What a worker is doing, for status pages and tests. A copy of one moment.
struct WorkerSnapshot {
  enum class Step : uint8_t {
    kNone,
    // Its function runs, or has not yet noticed that it is cancelled.
    kRunning,
    // It is over, and the step before it commits.
    kBehind,
    // It is over, and waits for an optimizer's slots.
    kNeedsSlots,
    // It is over, and its commit is being planned.
    kPlanning,
    // It is over, and a checkpoint is being cut: it may not commit before the Release.
    kHeld,
    // From here on it cannot fail.
    kCommitting,
  };
  JobId job;  // 0: never attached
  bool attached = false;
  // attached, but the coordinator has not been heard for coordinator_silence
  bool silent = false;
  // A Steps stream is open.
  bool connected = false;
  Epoch epoch;
  SessionId session;  // the live one, if attached
  uint64_t layout_version = 0;
  Step step = Step::kNone;
  // The newest step that has begun and is not reported.
  std::optional<EntryId> live;
  // Of it.
  std::string live_function;
  // Of it, if it is a training step.
  std::optional<int64_t> live_ordinal;
  // In order.
  std::vector<EntryId> queued;
  // Those of them whose first pull has left.
  std::vector<EntryId> ahead;
  // No commit begins.
  bool held = false;
  // The step whose commits are under way: the live one, or the one before it.
  std::optional<EntryId> committing;
  // ps that have not answered the commit of that step
  std::vector<int> unanswered;
  std::set<ResourceId> resources;
  RowCacheStats rows;         // of this session, where rows are kept
  size_t unacknowledged = 0;  // messages of the Steps stream
  int64_t reported = 0;       // steps, in this life
};

// Thread-safe; no method waits.
class WorkerCore : public StepsAcceptor, public std::enable_shared_from_this<WorkerCore> {
 public:
  // Begins to register, where `coordinator` is not null (it may be null where the coordinator knows
  // the address already). `on_exit` is called once: the job is over, the coordinator refuses this
  // task for ever (registrar.h), nobody has asked for this worker for orphan_timeout (138), a step
  // has found that a GPU of this process is lost (138; the step is given back, and those that wait
  // behind it), or a Drain is complete (143). InvalidArgument: bad options. REQUIRES: the
  // references and `coordinator` outlive the core and all its tasks.
  static absl::StatusOr<std::shared_ptr<WorkerCore>> Start(
      WorkerOptions options, Executor& executor, Clock& clock, StepRunner& runner,
      InputOpener& inputs, Dialer& dialer, CoordinatorClient* coordinator, OnExit on_exit);
  ~WorkerCore() override;
  WorkerCore(const WorkerCore&) = delete;

  // ---- from the coordinator; thread-safe, any number at once, each may come twice, late or never.
  // `done` is called once, perhaps before the call returns ----

  // Begins the session `request.fence.session`. What an older one left is dropped: steps, commits
  // under way (they are fenced at every ps before this is sent), iterators. The same request again
  // changes nothing. Refused as the request check says (protocol/request_check.h), and with
  // kSessionFenced where the session is older than the newest, or was ended here; with
  // VERSION_MISMATCH; with INVALID where it has no session or layout; with JOB_OVER where this
  // worker is ending.
  void Call(WorkerAttachRequest request, ResultCallback<WorkerAttachReply> done);
  // Begins nothing more, lets a commit under way end (at most drain_timeout), drops the rest, then
  // calls on_exit. Answered at once.
  void Call(ShutdownRequest request, ResultCallback<ShutdownReply> done);
  // A connection of the Steps stream. It belongs to the session that its first frame names; one of
  // a session that is not alive is closed.
  std::shared_ptr<StreamListener<ToWorker>> Accept(
      std::shared_ptr<StreamConnection<FromWorker>> connection) override;

  // ---- from its own process ----

  // The process was asked to end (SIGTERM): tells the coordinator, finishes what it has been given,
  // then calls on_exit with 143. With a coordinator that says nothing any more it finishes only
  // what it commits, for at most drain_timeout.
  void Drain();
  // Forgets all timers, completions and connections, without a word: nothing is answered any more;
  // a step that runs is cancelled, so that its thread ends. For a process about to end, and for the
  // simulation's kill. The destructor does the same.
  void Abandon();

  WorkerSnapshot Inspect() const;
  // Of all state that a message can change: a message that is refused or has been seen before
  // leaves it as it is.
  uint64_t StateHash() const;

 private:
  // One commit of the committing step, to one ps.
  struct Commit {
    CommitRequest request;
    Backoff backoff;
    absl::Duration since;                // when it was first sent
    std::optional<absl::Status> answer;  // OK, or a refusal
  };
  struct LiveStep {
    LiveStep(Dispatch dispatch, std::shared_ptr<WorkerTransaction> transaction,
             std::set<std::string> missed)
        : dispatch(std::move(dispatch)),
          transaction(std::move(transaction)),
          missed(std::move(missed)) {}
    Dispatch dispatch;
    std::shared_ptr<WorkerTransaction> transaction;
    // variables that earlier steps of this session write to, and that this one may have read
    // without those writes
    std::set<std::string> missed;
    // Its data was asked for before it began.
    bool reads_ahead = false;
    WorkerSnapshot::Step state = WorkerSnapshot::Step::kRunning;
    bool cancelled = false;
    absl::StatusOr<Nest> result = Nest();  // of its function
    StepRecord record;
    std::vector<EndedInput> ended;
    std::shared_ptr<const CommitWork> planning;  // of the plan that is being made
    std::optional<PlannedCommit> plan;           // the newest; its parts go into `commits`
    std::map<int, Commit> commits;               // by ps
    uint64_t staleness = 0;
    absl::Duration began;
  };
  // A step that waits for those before it.
  struct QueuedStep {
    Dispatch dispatch;
    // Its transaction, where its first pull has left; else null.
    std::shared_ptr<WorkerTransaction> ahead;
    // By that.
    std::vector<std::string> pulled;
    // Of these: written to since by steps of this session.
    std::set<std::string> missed;
    // Its data has been asked for.
    bool reads_ahead = false;
    // What `ahead` has pulled is copied to where the step will compute.
    bool copies_ahead = false;
  };
  struct Session {
    explicit Session(SessionId id) : stream(id) {}
    std::shared_ptr<const SessionLinks> links;
    std::shared_ptr<const Layout> layout;
    uint64_t job_seed = 0;
    ResumableStream<FromWorker, ToWorker> stream;
    std::optional<uint64_t> connection;  // that carries the stream
    uint64_t unanswered_messages = 0;    // received since something was sent
    absl::Duration last_heard;
    std::deque<QueuedStep> queue;
    // Until it commits.
    std::optional<LiveStep> live;
    // While there is one, the live step runs or is kBehind: one step commits at a time.
    std::optional<LiveStep> committing;
    // null: none are kept
    std::shared_ptr<RowCache> rows;
    std::set<ResourceId> resources;
    std::optional<uint64_t> hold;  // no commit begins before its Release
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

  // worker_core.cc: what the coordinator says on it
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
  void KeepNoRowsOfAssigned(const std::vector<StagedWrite>& writes) DIVVY_REQUIRES(mu_);
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
  void EndCommitIfAnswered() DIVVY_REQUIRES(mu_);
  void ReportLive(StepOutcome outcome, absl::Status error) DIVVY_REQUIRES(mu_) {
    ReportStep(session_->live, outcome, std::move(error));
  }
  void ReportStep(std::optional<LiveStep>& ended, StepOutcome outcome, absl::Status error)
      DIVVY_REQUIRES(mu_);
  WorkerSnapshot InspectLocked() const DIVVY_REQUIRES(mu_);
  // The live step, or the committing one, if it is this one of this session, else null: what comes
  // late for another is dropped.
  LiveStep* Live(const std::weak_ptr<Session>& session, EntryId step) DIVVY_REQUIRES(mu_);
  LiveStep* Committing(const std::weak_ptr<Session>& session, EntryId step) DIVVY_REQUIRES(mu_);

  const WorkerOptions options_;
  Executor& executor_;
  Clock& clock_;
  StepRunner& runner_;
  InputOpener& inputs_;
  Dialer& dialer_;

  Outbox outbox_;
  mutable Mutex mu_;  // before a WorkerTransaction's
  OnExit on_exit_ DIVVY_GUARDED_BY(mu_);
  // Of the program, from the last Attach.
  std::optional<std::map<std::string, std::string>> applied_flags_ DIVVY_GUARDED_BY(mu_);
  bool over_ DIVVY_GUARDED_BY(mu_) = false;
  std::optional<int> shutdown_code_ DIVVY_GUARDED_BY(mu_);  // of a Shutdown that waits for a commit
  absl::Duration shutdown_since_ DIVVY_GUARDED_BY(mu_);
  // It takes no new steps, and ends when what it has is done.
  struct Ending {
    int exit_code = 0;
    std::string why;
    // false: a GPU is lost, and what waits here is given back
    bool can_compute = true;
    absl::Duration since;
  };
  std::optional<Ending> draining_ DIVVY_GUARDED_BY(mu_);
  // job, newest epoch with its coordinator, newest session in it
  Fence known_ DIVVY_GUARDED_BY(mu_);
  // null: detached
  std::shared_ptr<Session> session_ DIVVY_GUARDED_BY(mu_);
  std::map<uint64_t, std::shared_ptr<StreamConnection<FromWorker>>> connections_
      DIVVY_GUARDED_BY(mu_);
  uint64_t next_connection_ DIVVY_GUARDED_BY(mu_) = 1;
  RowCacheMetrics row_cache_metrics_;
  // variables that a step of this life has assigned in part or whole: their rows are not kept
  std::set<std::string> assigned_rows_ DIVVY_GUARDED_BY(mu_);
  ReadSets read_sets_ DIVVY_GUARDED_BY(mu_);
  // The coordinator's last word to this worker.
  absl::Duration last_contact_ DIVVY_GUARDED_BY(mu_);
  // null: nobody to register with
  std::shared_ptr<Registrar> registrar_ DIVVY_GUARDED_BY(mu_);
  int64_t reported_ DIVVY_GUARDED_BY(mu_) = 0;
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_WORKER_CORE_H_
