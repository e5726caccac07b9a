// The coordinator without a network: which steps exist, who runs them, and when they have happened
// once and for all.
//
// An event-driven state machine (protocol sections 3, 4, 7-9, 14, 16): each method takes an event,
// changes state under one lock, never waits, and answers through completions that run after the
// lock is gone, in the order decided. Blocking calls for programs: blocking_coordinator.h.
//
// A parameter server is lost when another process answers, or registers, in its place; or a half
// applied step is one that no run can complete:
//   Durability::kReplay       all servers go back to the newest checkpoint, and what was done since
//                             is run again (replay.cc). Values that were delivered stay, and the
//                             program notices a pause
//   Durability::kCheckpoint   the job ends with Unavailable (Reason::kPsLost); the next start goes
//                             on from the newest checkpoint
// A server that is merely silent is waited for, up to ps_timeout. What else ends a job, and every
// later call with it: kStaleEpoch and kSecondCoordinator (another coordinator has the job),
// kWrongJob (a task belongs to another). ExitCodeOf (cluster/error.h) says what a process ends with
// for each.
//
// The parts: lifecycle.cc (epochs, the end), parameter_servers.cc (attach, load, sync, the watch),
// workers.cc (sessions, Steps streams, fences), steps.cc (the calls that concern steps, what may go
// on after an event), variables.cc (layout changes), direct_writes.cc, direct_reads.cc,
// checkpoints.cc (checkpoints, and the state that an epoch begins with), adopt.cc (going on with
// what the servers hold), replay.cc (back to the last cut, and forward again), resize.cc (another
// number of servers).
//
// Machines with a state of their own, which the core calls. A machine calls the core only by its
// small Host:
//   ServerSet        calls nobody
//   StateOrigin      calls nobody
//   WorkerSet        calls nobody
//   LayoutPlan       calls nobody
//   Passes           calls WorkerSet
//   LayoutChanges    calls LayoutPlan, WorkerSet, its Host
//   StepQueue        calls Passes, WorkerSet, RedoLog, its Host
//   WriteQueue       calls StepQueue, WorkerSet, its Host
//   Recovery         calls StepQueue, WriteQueue, Passes, WorkerSet, EntryIds, its Host
//   StoredState      calls StepQueue, Passes, ServerSet
//   CheckpointMaker  calls WorkerSet, the Store (to forget checkpoints: no answer is waited for),
//   its Host
#ifndef DIVVY_COORDINATOR_CORE_COORDINATOR_CORE_H_
#define DIVVY_COORDINATOR_CORE_COORDINATOR_CORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/outbox.h"
#include "cluster/clients.h"
#include "cluster/job_state.h"
#include "cluster/messages.h"
#include "cluster/resumable_stream.h"
#include "coordinator/core/checkpoint_maker.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/coordinator_snapshot.h"
#include "coordinator/core/entry_ids.h"
#include "coordinator/core/job_phase.h"
#include "coordinator/core/layout_changes.h"
#include "coordinator/core/layout_plan.h"
#include "coordinator/core/limited_log.h"
#include "coordinator/core/passes.h"
#include "coordinator/core/recovery.h"
#include "coordinator/core/resizing.h"
#include "coordinator/core/server_set.h"
#include "coordinator/core/state_origin.h"
#include "coordinator/core/step_queue.h"
#include "coordinator/core/store.h"
#include "coordinator/core/stored_state.h"
#include "coordinator/core/worker_set.h"
#include "coordinator/core/write_queue.h"

namespace divvy {

// Thread-safe; no method waits but Start. Completions are called once, on whichever thread comes to
// it (perhaps within the call) and never under the lock: they must not block. After Abandon they
// are dropped. Errors that every call of the program may get: what ended the job (kPsLost,
// kStaleEpoch, kSecondCoordinator, ...), and Cancelled (kJobOver) once it drains.
//
//   ASSIGN_OR_RETURN(auto core, CoordinatorCore::Start(options, executor, clock, dialer, store));
//   core->CreateVariable(spec, std::nullopt, [](absl::Status created) { ... });
//   core->Run({{"train"}, "clicks", Nest()}, [](Nest value) { ... }, [](absl::Status done) { ...
//   }); core->EndJob(0, [](absl::Status ended) { ... });
class CoordinatorCore : public std::enable_shared_from_this<CoordinatorCore>,
                        private CheckpointMaker::Host,
                        private LayoutChanges::Host,
                        private StepQueue::Host,
                        private WriteQueue::Host,
                        private Recovery::Host {
 public:
  // Loads the job's row, takes the next epoch and begins to dial. InvalidArgument: bad options.
  // Reason::kJobOver: the job of this store has ended; ExitCodeOf the status is what it ended with.
  // kWrongJob: the catalog's checkpoints are another job's. Or the store's error, or that of
  // CheckpointCatalog::Newest. May block (the store, the catalog).
  // REQUIRES: the references outlive the core and all its tasks.
  static absl::StatusOr<std::shared_ptr<CoordinatorCore>> Start(CoordinatorOptions options,
                                                                Executor& executor, Clock& clock,
                                                                Dialer& dialer, Store& store);

  // ---- from the cluster ----
  // Where a task is. Answers `over` from the end of the job on. Refusals, each with its fix:
  // VERSION_MISMATCH; CLUSTER_MISMATCH (its TF_CONFIG contradicts ours, or there is no such ps
  // index); DUPLICATE_TASK: the process that has this job and index has answered since, so it
  // lives. NOT_READY, ask again: that is not known yet, or this coordinator is about to end. A task
  // whose former process is dead is taken over at once.
  void Call(RegisterRequest request, ResultCallback<RegisterReply> done);

  // ---- from the program: thread-safe, any number at once; `done` is called once ----

  // When the cluster is ready for steps, or the error that ended the job.
  void WhenRunning(StatusCallback done);
  // Makes the checkpoint that follows: one cut over all servers; steps go on. `done` has its name
  // when it is on the disk, or why it could not be made (the older ones stand). FailedPrecondition:
  // there is no catalog.
  // An operator decides nothing for the program: asked before the job runs, the checkpoint is made
  // when it does.
  enum class Asker : uint8_t { kProgram, kOperator };
  void SaveCheckpoint(ResultCallback<CheckpointId> done, Asker asker = Asker::kProgram);
  // After the variables are created, and before any other use of them: goes on with what the
  // servers hold, where that is a whole state and the store was kept (adoption.h): then nothing
  // that has finished is lost, and nothing is loaded. Else with the newest checkpoint that is
  // whole, whatever its number of ps. The steps that are in it; 0: there is neither. Variables that
  // it has not got get their initial values. FailedPrecondition: one is of another dtype or shape,
  // or was used.
  void RestoreLatest(ResultCallback<int64_t> done);
  // Whether nobody knows yet if the variables are restored: they are declared, and have no values.
  bool Choosing() const;
  // A variable is about to be created whose first values are written later, by the program: until
  // as many have been brought no checkpoint is cut, for it would hold what nobody asked for. Each
  // call with +1 is followed by one with -1.
  void ExpectValues(int change);
  // Whether the state of the job is decided, and no checkpoint is in it: RestoreLatest comes too
  // late, or has nothing to restore.
  bool HasBegunAnew() const;
  struct Restored {
    // Of the checkpoint, or of what the servers held, that this life of the program went on from.
    int64_t epochs = 0, steps = 0;
  };
  Restored restored() const;
  // Whether the variable's values came with that.
  bool WasRestored(const std::string& variable) const;
  // Saved in each checkpoint from now on, and in the store before another step begins (some 0.2 ms:
  // for each round or epoch, not for each step); what it is after RestoreLatest was saved with it.
  void SetProgramState(std::string bytes);
  std::string program_state() const;
  // covered by a checkpoint
  int64_t durable_steps() const;
  // null: none are kept
  CheckpointCatalog* checkpoints() const { return options_.checkpoints; }
  // Makes the variable with the slots of its optimizer. AlreadyExists: the name is taken.
  // InvalidArgument: spec or partitioner. ResourceExhausted: a ps has no memory for it; nothing is
  // left behind. `with`: where it lies, in one shard; NotFound, InvalidArgument: there is no such
  // variable, or shard. REQUIRES: EvaluatedPerRow(spec.initializer).
  void CreateVariable(VariableSpec spec, std::optional<Colocation> with, StatusCallback done);
  std::shared_ptr<const Layout> layout() const;
  // The values as they stand, of all requests in one message to each ps; waits for a ps that is
  // away. NotFound, InvalidArgument: bad requests.
  void Read(std::vector<VariableRead> reads, ResultCallback<std::vector<Tensor>> done);
  // Applied when `done` is called: after all that the program has seen finished, before every step
  // dispatched later. Once, on every ps it touches.
  void Write(std::vector<StagedWrite> writes, StatusCallback done);

  // InvalidArgument: the arguments of `what` ("step train") are larger than max_args_bytes.
  // Schedule and Run refuse them so.
  absl::Status CheckArgs(const Nest& args, absl::string_view what) const;

  // `accepted` when the step is queued: at once, unless max_queued_steps wait, or with the error of
  // an earlier step (then it is not queued). `result` when it has finished (its value), failed, or
  // was cancelled (Reason::kBatchCancelled).
  // With `once`, `accepted` may be AlreadyExists: that number of the series has finished, in this
  // life of the job's program or in one that its state comes from. FailedPrecondition: it is queued
  // or runs. InvalidArgument: a read-only step, or no number from 0 to 2^53. Then it is not queued,
  // and `result` is not called.
  void Schedule(StepRequest request, ResultCallback<Nest> result, StatusCallback accepted);
  // When nothing is queued and nothing in flight, or the error of a step.
  void Join(StatusCallback done);
  // Whether nothing is queued or in flight; or the error of a step, after its batch has been
  // cancelled.
  void Done(ResultCallback<bool> done);
  // Runs the loop. `value` is called for each finished step, in the order of finishing, the last
  // before `done`. `done`: OK when it is over; InvalidArgument, as CheckArgs, or where a loop with
  // last_step finds no element in its data; else the first error of a step, after its batch has
  // been cancelled.
  void Run(RunRequest request, std::function<void(Nest)> value, StatusCallback done);
  // The loop makes no more steps: it is done when those in flight have ended, and does not count as
  // an epoch. One that is over already stays so.
  void StopRun(uint64_t token);

  // An iterator over the data, from its beginning, on every worker; a worker that comes back makes
  // it again. REQUIRES: CheckArgs(args) is OK.
  ResourceId MakeIterator(std::string source, Nest args, bool leased);
  // Steps that are queued or running keep it until they end.
  void DropIterator(ResourceId iterator);

  uint64_t job_seed() const { return options_.job_seed; }
  JobId job() const;
  int64_t epoch() const;  // RunEpochs of training steps completed
  int64_t step() const;   // training steps finished
  // Of steps that are first dispatched from now on. Not finite: the one before stays, and
  // InvalidArgument is raised as a step's error is.
  void SetLearningRateScale(double scale);

  // Ends the job: all parameter servers confirm that they are what they were, the store says how it
  // ended, workers and ps are told to exit with `exit_code`. REQUIRES: joined. The program makes no
  // further calls.
  void EndJob(int exit_code, StatusCallback done);

  // Goes on with so many parameter servers: steps in flight end, a checkpoint is made, and all load
  // it, cut and placed anew. Those that join are ps N, N+1, ... and are waited for until they have
  // registered; of too many the last are told to end with 0. `done` when steps run again. The job's
  // flags keep the number of its start: a coordinator that is started again is told by its own.
  // FailedPrecondition: no catalog, another resize is under way, or the job is about to end.
  // InvalidArgument: no number of servers, or one that the partitioner cannot cut a variable for.
  // Unavailable: who was to join has not come within ps_timeout. The disk's error, of the
  // checkpoint. After an error the number is as it was, and the job goes on.
  void Resize(int num_ps, StatusCallback done);

  // The process was asked to end (SIGTERM): dispatches nothing more and waits for what is in
  // flight. Then every call of the program that waits, and every later one, gets Cancelled
  // (Reason::kJobOver), and `done` is called: the process may exit (143). Workers and ps are told
  // nothing: they wait for the next coordinator. A job that is being ended is ended first.
  void Drain(std::function<void()> done);
  // The process that this is in cannot go on with the job: from now on every call of the program
  // has this error. For an embedded cluster, whose workers' GPUs are lost until the process is
  // started again. Nothing after the job's end.
  void Fail(absl::Status why);

  CoordinatorSnapshot Snapshot() const;
  // How many entries each structure holds that grows and shrinks as the job runs, by its name: for
  // tests and benchmarks that look for what only grows.
  std::map<std::string, int64_t> Sizes() const;
  // The greatest staleness of a step that has finished since this was last asked, by one asker.
  uint64_t TakeMaxStaleness();
  // Forgets all completions and timers: no call is answered any more. For a process about to end,
  // and for the simulation's kill.
  void Abandon();

  // For the simulation: ids in flight or queued with an id (what may still be applied), and those
  // finished with their participants.
  struct Inspection {
    std::vector<EntryId> open;
    // steps and direct writes, with the ps they committed to; after a rewind: of those since the
    // base
    std::map<EntryId, std::vector<int>> finished;
    std::map<ResourceId, std::vector<std::pair<int64_t, int64_t>>> finished_positions;
    bool idle = false;
    // The life of each ps that this coordinator counts on.
    std::vector<Incarnation> ps;
    // The most of any Steps stream.
    int unacknowledged = 0;
    // What has finished is not all there again: so many steps are still to be run again.
    std::optional<int64_t> steps_to_replay;
    // Of the servers' state, once this coordinator has run on it.
    Epoch lineage;
  };
  Inspection Inspect() const;
  void KeepHistory() { keep_history_ = true; }  // before any step: Inspect tells what finished

 private:
  using Phase = CoordinatorSnapshot::Phase;
  class StepsListener;

  // coordinator_records.h
  using Claim = coordinator_records::Claim;
  using Ps = coordinator_records::Ps;
  using Worker = coordinator_records::Worker;
  using Step = coordinator_records::Step;
  using RunState = coordinator_records::RunState;
  using FenceWait = coordinator_records::FenceWait;
  using DirectWrite = coordinator_records::DirectWrite;
  using DirectRead = coordinator_records::DirectRead;
  using WorkerStream = coordinator_records::WorkerStream;

  // Each event, a call or an answer, is handled while one of these lives. Holds the lock. At its
  // end what the event makes possible is done (Pump), then the lock is released, and the outbox
  // drained.
  class DIVVY_SCOPED_CAPABILITY Event {
   public:
    explicit Event(CoordinatorCore& core) DIVVY_ACQUIRE(core.mu_) : core_(core) {
      core_.mu_.Lock();
    }
    ~Event() DIVVY_RELEASE() {
      if (!core_.abandoned_) core_.Pump();
      core_.mu_.Unlock();
      core_.outbox_.Drain();
    }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;

   private:
    CoordinatorCore& core_;
  };

  CoordinatorCore(CoordinatorOptions options, Executor& executor, Clock& clock, Dialer& dialer,
                  Store& store, JobRow row, std::optional<JobState> found, StoredJob stored);

  // ---- lifecycle.cc ----
  void BeginEpoch() DIVVY_REQUIRES(mu_);  // makes stored_.row() durable, then dials
  void RestartEpoch(Epoch above) DIVVY_REQUIRES(mu_);
  absl::Status Admit(const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  bool ComesBeforeItsResize(const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  absl::Status CheckRegister(const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  absl::Status CheckAttached(const Worker& worker, const WorkerAttachReply& reply)
      DIVVY_REQUIRES(mu_);
  void MaybeLoad() DIVVY_REQUIRES(mu_);
  bool BeforeRunning() const DIVVY_REQUIRES(mu_) {
    return phase_.Is(Phase::kAttaching) || phase_.Is(Phase::kChoosing) ||
           phase_.Is(Phase::kLoading);
  }
  void LookForCheckpoints() DIVVY_REQUIRES(mu_);
  void OnNewest(const absl::StatusOr<std::optional<JobState>>& newest) DIVVY_REQUIRES(mu_);
  void BeginChoosing() DIVVY_REQUIRES(mu_);
  void BeginLoading() DIVVY_REQUIRES(mu_);
  void FinishLoading() DIVVY_REQUIRES(mu_);
  void StartRunning() DIVVY_REQUIRES(mu_);
  void LetWaitersGo() DIVVY_REQUIRES(mu_);
  void Tick();
  void WatchProgress(absl::Duration now) DIVVY_REQUIRES(mu_);
  std::string WhatEverybodyDoes() const DIVVY_REQUIRES(mu_);
  void ScheduleTick() DIVVY_REQUIRES(mu_);
  void FailJob(absl::Status error) override DIVVY_REQUIRES(mu_);
  std::vector<Task> TakeWaiters(const absl::Status& error) DIVVY_REQUIRES(mu_);
  void FinishEnding() DIVVY_REQUIRES(mu_);
  void StoreEnd() DIVVY_REQUIRES(mu_);
  static absl::Status Drained();
  void DrainIfQuiet() DIVVY_REQUIRES(mu_);
  void TellDrained() DIVVY_REQUIRES(mu_);
  void OnEndStored(int exit_code) DIVVY_REQUIRES(mu_);
  void ShutDownTasks(JobPhase::Shutdowns& shutdowns, int exit_code) DIVVY_REQUIRES(mu_);
  void OnShutDown() DIVVY_REQUIRES(mu_);
  Fence FenceFor(Incarnation target, SessionId session = kCoordinatorSession) const
      DIVVY_REQUIRES(mu_);
  std::vector<CoordinatorSnapshot::Wait> Waits() const DIVVY_REQUIRES(mu_);

  // ---- parameter_servers.cc ----
  void AttachPs(Ps& ps) DIVVY_REQUIRES(mu_);
  void OnPsAttached(Ps& ps, const absl::StatusOr<PsAttachReply>& reply) DIVVY_REQUIRES(mu_);
  absl::Status AdmitPs(const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  void ProbePs(Ps& ps) DIVVY_REQUIRES(mu_);
  void OnProbed(Ps& ps, const absl::StatusOr<PsAttachReply>& reply, Incarnation asked)
      DIVVY_REQUIRES(mu_);
  void ProbePsAgain(Ps& ps) DIVVY_REQUIRES(mu_);
  void PsGone(Ps& ps) DIVVY_REQUIRES(mu_);
  void LoadPs(Ps& ps) DIVVY_REQUIRES(mu_);
  void OnPsLoaded(Ps& ps, const absl::StatusOr<LoadReply>& reply, uint64_t layout_hash)
      DIVVY_REQUIRES(mu_);
  // Takes note of a failed call to a ps. True: it may be tried again, after the returned wait.
  std::optional<absl::Duration> OnPsFailure(Ps& ps, const absl::Status& error) DIVVY_REQUIRES(mu_);
  void PsLost(Ps& ps, absl::string_view how) DIVVY_REQUIRES(mu_);
  // Calls `ps` once the lock is gone, and `on_reply` with the answer and `args`, under the lock.
  // `on_reply` is not called if by then the core is gone or abandoned, or `ps` is not the Same.
  template <typename Request, typename... Params, typename... Args>
  void CallPs(const Ps& ps, Request request,
              void (CoordinatorCore::*on_reply)(Ps&, const absl::StatusOr<ReplyTo<Request>>&,
                                                Params...),
              Args... args) DIVVY_REQUIRES(mu_) {
    outbox_.Add([weak = weak_from_this(), index = ps.index, tries = ps.tries, client = ps.client,
                 request = std::move(request), on_reply, args...] {
      client->Call(request,
                   [weak, index, tries, on_reply, args...](absl::StatusOr<ReplyTo<Request>> reply) {
                     const auto self = weak.lock();
                     if (self == nullptr) return;
                     Event event(*self);
                     if (!self->abandoned_ && self->servers_.Same(index, tries))
                       ((*self).*on_reply)(self->servers_[index], reply, args...);
                   });
    });
  }
  // Runs `then` with `ps` and `args` after `wait`, if `ps` is still the Same.
  template <typename... Params, typename... Args>
  void LaterAt(const Ps& ps, absl::Duration wait, void (CoordinatorCore::*then)(Ps&, Params...),
               Args... args) DIVVY_REQUIRES(mu_) {
    Later(wait, [index = ps.index, tries = ps.tries, then, args...](CoordinatorCore& core)
                    DIVVY_REQUIRES(core.mu_) {
                      if (core.servers_.Same(index, tries))
                        (core.*then)(core.servers_[index], args...);
                    });
  }
  // A call to `ps` has failed. Makes it again by `again`, after a pause, unless the error ends the
  // job or shows that the server is another one.
  template <typename... Params, typename... Args>
  void RetryPs(Ps& ps, const absl::Status& error, void (CoordinatorCore::*again)(Ps&, Params...),
               Args... args) DIVVY_REQUIRES(mu_) {
    if (const auto wait = OnPsFailure(ps, error)) LaterAt(ps, *wait, again, args...);
  }
  std::string RemedyOfLoss() const DIVVY_REQUIRES(mu_);
  void CheckPs(const Ps& ps, absl::Duration now) DIVVY_REQUIRES(mu_);
  // sends the new state to every ps; returns the number that acknowledges it
  uint64_t WantSync() DIVVY_REQUIRES(mu_);
  void SendSync(Ps& ps) DIVVY_REQUIRES(mu_);
  void OnSynced(Ps& ps, const absl::StatusOr<SyncReply>& reply) DIVVY_REQUIRES(mu_);
  bool AllAcknowledged(uint64_t seq) const DIVVY_REQUIRES(mu_) { return servers_.Acked() >= seq; }
  Horizon MakeHorizon() const DIVVY_REQUIRES(mu_);

  // ---- workers.cc ----
  absl::Status AdmitWorker(const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  absl::Status ContestWorker(Worker& worker, const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  void PingWorker(Worker& worker) DIVVY_REQUIRES(mu_);
  Worker& KnownWorker(int index, const std::string& address) DIVVY_REQUIRES(mu_);
  void AttachWorker(Worker& worker) DIVVY_REQUIRES(mu_);
  void AttachWorkerLater(Worker& worker) DIVVY_REQUIRES(mu_);
  void OnWorkerAttached(int index, uint64_t attempt, SessionId session,
                        absl::StatusOr<WorkerAttachReply> reply);
  bool ServesAnother(const absl::Status& refusal) const DIVVY_REQUIRES(mu_);
  // true: that was the end of the job
  bool OnAttachRefused(Worker& worker, const absl::Status& refusal) DIVVY_REQUIRES(mu_);
  void GiveWay(const absl::Status& refusal) DIVVY_REQUIRES(mu_);
  void OpenSteps(Worker& worker) DIVVY_REQUIRES(mu_);
  void OnFrame(int index, uint64_t connection, StreamFrame<FromWorker> frame);
  void OnBroken(int index, uint64_t connection);
  void HandleMessage(Worker& worker, FromWorker message) DIVVY_REQUIRES(mu_);
  StatusCallback RefusalOfSlots(int worker, EntryId id);
  bool AdmitJoined() DIVVY_REQUIRES(mu_);
  void LoseWorker(Worker& worker, absl::string_view why) DIVVY_REQUIRES(mu_);
  void CheckWorker(Worker& worker, absl::Duration now) DIVVY_REQUIRES(mu_);
  absl::Duration Counted(const Pong& pong, absl::Duration passed) const DIVVY_REQUIRES(mu_);
  void FinishFence(const FenceWait& fence) DIVVY_REQUIRES(mu_);

  // ---- steps.cc ----
  void Pump() DIVVY_REQUIRES(mu_);
  void FinishWhatIsBegun() DIVVY_REQUIRES(mu_);
  void GoOn() DIVVY_REQUIRES(mu_);
  enum class IdFor : uint8_t { kAny, kFirstValues };
  bool MayGiveId(IdFor what = IdFor::kAny) const DIVVY_REQUIRES(mu_);
  // StepQueue::Host
  bool MayBeginStep() override DIVVY_REQUIRES(mu_);
  EntryId GiveId() override DIVVY_REQUIRES(mu_);  // for WriteQueue, too
  void OnLogGrown() override DIVVY_REQUIRES(mu_) { recovery_.GiveUpFullLog(); }
  void OnFinished(const Step& step, const Report& report) override DIVVY_REQUIRES(mu_);
  bool FailUnlessRewindable(const std::string& why) override DIVVY_REQUIRES(mu_);
  void DispatchLater(absl::Duration wait) override DIVVY_REQUIRES(mu_);
  void NoteStored(const StoredMark& mark) DIVVY_REQUIRES(mu_);
  bool Idle() const DIVVY_REQUIRES(mu_);
  // If a step's error is stored (or the job has failed): sees to it that `raise` gets it, and
  // returns true. `again` repeats the call, should another raise it.
  bool RaisesInstead(StatusCallback raise, std::function<void()> again) DIVVY_REQUIRES(mu_);

  // ---- variables.cc ----
  VariableId NewVariableId() DIVVY_REQUIRES(mu_) {
    return VariableId(stored_.row().next_variable_id++);
  }
  LayoutPlan::NewId NewIds() DIVVY_REQUIRES(mu_) {
    return [this]() DIVVY_REQUIRES(mu_) { return NewVariableId(); };
  }
  void SendShards(Ps& ps) DIVVY_REQUIRES(mu_);
  void OnShards(Ps& ps, const absl::StatusOr<LayoutReply>& answer) DIVVY_REQUIRES(mu_);
  void SendUndo(Ps& ps) DIVVY_REQUIRES(mu_);
  void OnUndone(Ps& ps, const absl::StatusOr<LayoutReply>& answer) DIVVY_REQUIRES(mu_);
  // LayoutChanges::Host
  bool MayChangeLayout() const override DIVVY_REQUIRES(mu_);
  bool IsChoosing() const override DIVVY_REQUIRES(mu_) { return phase_.Is(Phase::kChoosing); }
  void CreateShardsAt(int ps) override DIVVY_REQUIRES(mu_);
  void DeleteShardsAt(int ps) override DIVVY_REQUIRES(mu_);
  void StoreLayout(const VariableLayout& variable, std::shared_ptr<const Layout> next) override
      DIVVY_REQUIRES(mu_);
  void OnShardsMade(uint64_t version, const LayoutChanges::Shards& shards) override
      DIVVY_REQUIRES(mu_);

  // ---- direct_writes.cc ----
  bool MayPlanWrite(const std::vector<StagedWrite>& writes, const StatusCallback& done)
      DIVVY_REQUIRES(mu_);
  void WriteLater(std::vector<StagedWrite> writes, StatusCallback done);
  void QueueWrite(WriteQueue::CommitPlan plan, StatusCallback done) DIVVY_REQUIRES(mu_);
  bool CreateMissingSlots(const std::vector<StagedWrite>& writes, const StatusCallback& done)
      DIVVY_REQUIRES(mu_);
  // WriteQueue::Host
  bool MayBeginWrite() const override DIVVY_REQUIRES(mu_);
  bool MayHold() const override DIVVY_REQUIRES(mu_);
  void OnWriteBegun(const DirectWrite& write) override DIVVY_REQUIRES(mu_);
  void SendCommit(int ps, const std::shared_ptr<DirectWrite>& write) override DIVVY_REQUIRES(mu_);
  void SendWrite(Ps& ps, std::shared_ptr<DirectWrite> write) DIVVY_REQUIRES(mu_);
  void OnWritten(Ps& ps, const absl::StatusOr<CommitReply>& answer,
                 std::shared_ptr<DirectWrite> write) DIVVY_REQUIRES(mu_);

  // ---- direct_reads.cc ----
  void PlanRead(DirectRead& read) DIVVY_REQUIRES(mu_);
  void SendReads() DIVVY_REQUIRES(mu_);
  void SendRead(Ps& ps, std::shared_ptr<DirectRead> read) DIVVY_REQUIRES(mu_);
  void OnRead(Ps& ps, const absl::StatusOr<PullReply>& reply, std::shared_ptr<DirectRead> read)
      DIVVY_REQUIRES(mu_);

  // ---- checkpoints.cc ----
  bool WantsLastCheckpoint() const DIVVY_REQUIRES(mu_);
  void SendSnapshot(Ps& ps, CheckpointId id) DIVVY_REQUIRES(mu_);
  void OnSnapshot(Ps& ps, const absl::StatusOr<SnapshotReply>& reply, CheckpointId id, bool waited)
      DIVVY_REQUIRES(mu_);
  void OnHeld(const Worker& worker, uint64_t number) DIVVY_REQUIRES(mu_);
  // CheckpointMaker::Host
  bool MayCut() const override DIVVY_REQUIRES(mu_);
  bool HasOpenWrites() const override DIVVY_REQUIRES(mu_) { return !writes_.open().empty(); }
  bool NeedsCheckpoint() const override DIVVY_REQUIRES(mu_);
  bool AwaitsCheckpoint() const override DIVVY_REQUIRES(mu_);
  bool IsRunning() const override DIVVY_REQUIRES(mu_) { return phase_.Is(Phase::kRunning); }
  bool IsDraining() const override DIVVY_REQUIRES(mu_) { return when_drained_.has_value(); }
  CheckpointId Name() override DIVVY_REQUIRES(mu_);
  CheckpointMaker::Cut CutNow(CheckpointId id) override DIVVY_REQUIRES(mu_);
  void SendSnapshots(CheckpointId id) override DIVVY_REQUIRES(mu_);
  void LookAgain(int ps, CheckpointId id) override DIVVY_REQUIRES(mu_);
  void Commit(const JobState& state, std::vector<std::vector<SavedSlice>> parts) override
      DIVVY_REQUIRES(mu_);
  void Collect(CheckpointId base, CheckpointId below) override DIVVY_REQUIRES(mu_);
  void WorkGoesOn() override DIVVY_REQUIRES(mu_);
  void Persist(StoreChange change) override DIVVY_REQUIRES(mu_) {
    PutThen(std::move(change), [](CoordinatorCore&) {});
  }
  void OnSaved(const CheckpointMaker::Cut& cut) override DIVVY_REQUIRES(mu_);
  void OnDiskFailure(const absl::Status& why) override DIVVY_REQUIRES(mu_);
  void ChooseEmpty() DIVVY_REQUIRES(mu_);
  void ChooseCheckpoint() DIVVY_REQUIRES(mu_);
  void TakeUp(const JobState& state) DIVVY_REQUIRES(mu_);
  void MakeDeclared() DIVVY_REQUIRES(mu_);
  bool FallBack(const absl::Status& error) DIVVY_REQUIRES(mu_);

  // ---- adopt.cc ----
  void LookAtServers() DIVVY_REQUIRES(mu_);
  void TellStoreThenKeep() DIVVY_REQUIRES(mu_);
  void TakeBackAdoption() DIVVY_REQUIRES(mu_);
  void FinishAdopting() DIVVY_REQUIRES(mu_);
  void StoreState() override DIVVY_REQUIRES(mu_);  // tells the store what has changed

  // ---- replay.cc ----
  bool Replays() const DIVVY_REQUIRES(mu_) {
    return recovery_.log().kept() && !origin_.is_unsaved();
  }
  bool MayAttachWorkers() const DIVVY_REQUIRES(mu_) {
    return phase_.Is(Phase::kRunning) || phase_.Is(Phase::kReplaying);
  }
  void Rewind(std::string why) override DIVVY_REQUIRES(mu_);
  void GoBack(std::string why) DIVVY_REQUIRES(mu_);
  void DropSessions() DIVVY_REQUIRES(mu_);
  void ForgetCoveredHistory() DIVVY_REQUIRES(mu_);
  void FailBase(const absl::Status& error) DIVVY_REQUIRES(mu_);
  void BeginReplay() DIVVY_REQUIRES(mu_);
  void SettleReplayed(const std::shared_ptr<Step>& step, StepVerdict verdict,
                      const absl::Status& error) override DIVVY_REQUIRES(mu_) {
    recovery_.Settle(step, verdict, error);
  }
  // Recovery::Host
  void OnReplayAdvanced() override DIVVY_REQUIRES(mu_);
  void OnReplayFailed(const Step& step, const absl::Status& error) override DIVVY_REQUIRES(mu_);
  void FinishReplay() DIVVY_REQUIRES(mu_);
  void MoveBase(const JobState& committed) override DIVVY_REQUIRES(mu_);

  // ---- resize.cc ----
  absl::Status MayResize(int num_ps) const DIVVY_REQUIRES(mu_);
  bool ResizeWaits() const DIVVY_REQUIRES(mu_);
  bool ResizeIsQuiet() const DIVVY_REQUIRES(mu_);
  bool NothingSince(const CheckpointMaker::Cut& cut) const DIVVY_REQUIRES(mu_);
  void ChangeServers(const JobState& saved) DIVVY_REQUIRES(mu_);

  // A task for later that does nothing once the core is gone or abandoned; runs with the lock held
  // and is followed by the outbox.
  Task Guarded(std::function<void(CoordinatorCore&)> body);
  // Makes the change durable, then runs `then` as Guarded does. A store that fails ends the job.
  void PutThen(StoreChange change, std::function<void(CoordinatorCore&)> then) DIVVY_REQUIRES(mu_);
  void Later(absl::Duration delay, std::function<void(CoordinatorCore&)> body) DIVVY_REQUIRES(mu_);

  const CoordinatorOptions options_;
  Executor& executor_;
  Clock& clock_;
  Dialer& dialer_;
  Store& store_;

  mutable Mutex mu_;
  mutable Outbox outbox_;
  bool abandoned_ DIVVY_GUARDED_BY(mu_) = false;
  const absl::Duration began_;
  JobPhase phase_ DIVVY_GUARDED_BY(mu_);
  std::vector<StatusCallback> when_running_ DIVVY_GUARDED_BY(mu_);

  ServerSet servers_ DIVVY_GUARDED_BY(mu_);
  WorkerSet workers_ DIVVY_GUARDED_BY(mu_);
  LimitedLog said_of_peers_ DIVVY_GUARDED_BY(mu_);
  Passes passes_ DIVVY_GUARDED_BY(mu_);  // calls workers_
  LayoutPlan layout_plan_ DIVVY_GUARDED_BY(mu_);
  // calls layout_plan_ and workers_, and this as its Host
  LayoutChanges layout_changes_ DIVVY_GUARDED_BY(mu_);
  // calls steps_, writes_, passes_, workers_, ids_, and this as its Host
  Recovery recovery_ DIVVY_GUARDED_BY(mu_);
  // calls passes_, workers_ and the redo log, and this as its Host
  StepQueue steps_ DIVVY_GUARDED_BY(mu_);
  // calls steps_ and workers_, and this as its Host
  WriteQueue writes_ DIVVY_GUARDED_BY(mu_);
  // calls workers_, and this as its Host
  CheckpointMaker checkpoint_maker_ DIVVY_GUARDED_BY(mu_);

  EntryIds ids_ DIVVY_GUARDED_BY(mu_);
  std::set<std::shared_ptr<DirectRead>> open_reads_ DIVVY_GUARDED_BY(mu_);

  // Not null: the process was asked to end.
  std::optional<std::vector<std::function<void()>>> when_drained_ DIVVY_GUARDED_BY(mu_);

  StoredState stored_ DIVVY_GUARDED_BY(mu_);  // calls steps_, passes_ and servers_
  StateOrigin origin_ DIVVY_GUARDED_BY(mu_);
  Resizing resizing_ DIVVY_GUARDED_BY(mu_);

  bool keep_history_ = false;
  Inspection history_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_COORDINATOR_CORE_H_
