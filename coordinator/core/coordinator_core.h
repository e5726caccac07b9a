// The coordinator without a network. It knows which steps exist, which worker runs each of them,
// and when a step has finished exactly once.
//
// An event-driven state machine (protocol sections 3, 4, 7-9, 14, 16). Each method takes an event
// and changes state under one lock. No method waits. Answers are completions that run after the
// lock is released, in the order in which they were decided. blocking_coordinator.h has the
// blocking calls for programs.
//
// A parameter server is lost when another process answers or registers in its place. A step that is
// half applied and that no run can complete has the same effect:
//   Durability::kReplay       all servers return to the newest checkpoint, and everything since
//                             then is run again (replay.cc). Values already delivered stay valid;
//                             the program only notices a pause
//   Durability::kCheckpoint   the job ends with Unavailable (Reason::kPsLost); the next start
//                             continues from the newest checkpoint
// The coordinator waits up to ps_timeout for a server that only does not answer. These errors also
// end the job, and every later call returns them: kStaleEpoch and kSecondCoordinator (another
// coordinator has the job), kWrongJob (a task belongs to another job). ExitCodeOf
// (protocol/error.h) gives the exit code for each.
//
// The files: lifecycle.cc (epochs, the end), parameter_servers.cc (attach, load, sync, the watch),
// workers.cc (sessions, Steps streams, fences), steps.cc (the calls about steps, and what may
// continue after an event), variables.cc (layout changes), direct_writes.cc, direct_reads.cc,
// checkpoints.cc (checkpoints, and the state that an epoch begins with), adopt.cc (continuing with
// the servers' state), replay.cc (rewind to the last cut and replay), resize.cc (another number of
// servers).
//
// The core calls these machines, each of which has its own state. A machine reaches the core only
// through its small Host interface:
//   ServerSet        calls nothing
//   StateOrigin      calls nothing
//   WorkerSet        calls nothing
//   LayoutPlan       calls nothing
//   Passes           calls WorkerSet
//   LayoutChanges    calls LayoutPlan, WorkerSet, its Host
//   StepQueue        calls Passes, WorkerSet, RedoLog, its Host
//   WriteQueue       calls StepQueue, WorkerSet, its Host
//   Recovery         calls StepQueue, WriteQueue, Passes, WorkerSet, EntryIds, its Host
//   StoredState      calls StepQueue, Passes, ServerSet
//   CheckpointMaker  calls WorkerSet, its Host, and the Store (to delete rows, without waiting)
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
#include "coordinator/core/checkpoint_maker.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/coordinator_snapshot.h"
#include "coordinator/core/entry_ids.h"
#include "coordinator/core/job_phase.h"
#include "coordinator/core/layout_changes.h"
#include "coordinator/core/layout_plan.h"
#include "coordinator/core/limited_log.h"
#include "coordinator/core/load_reports.h"
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
#include "protocol/clients.h"
#include "protocol/job_state.h"
#include "protocol/messages.h"
#include "protocol/resumable_stream.h"
#include "protocol/role.h"

namespace divvy {

// The core of a job's coordinator. Thread-safe. Only Start may block. A completion is called once,
// on any thread (perhaps within the call), and never under the lock. It must not block. Completions
// that are pending at Abandon are dropped.
//
// Every call of the program may return the error that ended the job (kPsLost, kStaleEpoch,
// kSecondCoordinator, ...), and Cancelled (kJobOver) once the process drains.
//
//   ASSIGN_OR_RETURN(auto core, CoordinatorCore::Start(options, executor, clock, dialer, store));
//   core->CreateVariable(spec, std::nullopt, [](absl::Status created) { ... });
//   core->Run({{"train"}, "clicks", Nest()}, [](Nest value) { ... },
//             [](absl::Status done) { ... });
//   core->EndJob(0, [](absl::Status ended) { ... });
class CoordinatorCore : public std::enable_shared_from_this<CoordinatorCore>,
                        private CheckpointMaker::Host,
                        private LayoutChanges::Host,
                        private StepQueue::Host,
                        private WriteQueue::Host,
                        private Recovery::Host {
 public:
  // Loads the job's row, takes the next epoch and begins to dial the tasks. Does not wait for them.
  // May block on the store and the catalog.
  //
  // Errors: InvalidArgument: bad options. Reason::kJobOver: the job of this store has ended;
  // ExitCodeOf(status) is the exit code it ended with. kWrongJob: the store or the catalog's
  // checkpoints belong to another job. DataLoss: the store is damaged, or its epoch is impossible;
  // the message names the remedy. Other errors are those of Store::Load and
  // CheckpointCatalog::Newest. REQUIRES: the references outlive the core and all its tasks.
  static absl::StatusOr<std::shared_ptr<CoordinatorCore>> Start(CoordinatorOptions options,
                                                                Executor& executor, Clock& clock,
                                                                Dialer& dialer, Store& store);

  // ---- from the cluster ----
  // A task announces its address. Once the job has ended, the reply has `over` set. A refusal names
  // its fix:
  //
  // - VERSION_MISMATCH: the task runs another version of the protocol.
  // - CLUSTER_MISMATCH: the task's TF_CONFIG contradicts the coordinator's, this ps index does not
  //   exist, a worker has another program or number of replicas, or a ps has no checkpoint
  //   directory and the job keeps checkpoints.
  // - DUPLICATE_TASK: another process has the same role and index. It has answered since this
  //   task first asked to join, so it lives.
  // - NOT_READY: register again later. The reason may pass: it is not known yet whether the former
  //   process lives, a resize may still make room for the ps, or this coordinator is about to end.
  // - INVALID: the request lacks a role, an index, an address or an incarnation.
  //
  // A task whose former process is dead takes its place at once.
  void Call(RegisterRequest request, ResultCallback<RegisterReply> done);

  // ---- from the program: thread-safe, any number at once; `done` is called once ----

  // `done` gets OK when the cluster can run steps, or when a state can be restored and the program
  // has to choose (RestoreLatest). Otherwise it gets the error that ended the job.
  void WhenRunning(StatusCallback done);
  // Makes a checkpoint whose cut is taken after this call, over all servers; steps go on. `done`
  // gets its id once it is on the disk. After an error the older checkpoints are unchanged.
  // FailedPrecondition: there is no catalog.
  //
  // A program that saves before it has restored chooses to begin anew. An operator's call makes no
  // such choice: if the job does not run yet, its checkpoint waits until the job runs.
  enum class Asker : uint8_t { kProgram, kOperator };
  void SaveCheckpoint(ResultCallback<CheckpointId> done, Asker asker = Asker::kProgram);
  // Chooses the state that the job continues with. Call it after the variables are created and
  // before any other use of them. The first choice is what the servers hold, if they hold a whole
  // state and the store was kept (adoption.h). No finished step is lost then, and nothing is
  // loaded. The second choice is the newest whole checkpoint, whatever the number of ps that made
  // it. `done` gets the number of training steps in the state, or 0 if there is no state. A
  // variable that the state does not have gets its initial values. A second call, once the job
  // runs, gets the number of steps finished so far.
  //
  // FailedPrecondition: a variable has another dtype or shape than in the state; the state has
  // variables, but none that the program has declared; or the job has begun without the state,
  // because the program used a variable before this call.
  void RestoreLatest(ResultCallback<int64_t> done);
  // True until the program has decided whether it restores the variables. Until then, variables are
  // only declared and have no values.
  bool Choosing() const;
  // Announces a variable whose first values the program writes later. Call with +1 before the
  // variable is created and with -1 after its values are written. No checkpoint is cut in between,
  // because it would contain zeros in place of these values.
  void ExpectValues(int change);
  // Whether the state is decided and the job has begun anew, with neither a checkpoint nor the
  // servers' state. RestoreLatest is then too late, or has nothing to restore.
  bool HasStartedFresh() const;
  struct Restored {
    // The counts in the state that this life of the program continued from: a checkpoint, or what
    // the servers held.
    int64_t epochs = 0, steps = 0;
  };
  Restored restored() const;
  // Whether the variable's values came with the restored state.
  bool WasRestored(const std::string& variable) const;
  // Bytes that are saved in each checkpoint from now on, and in the store before another step
  // begins. The store costs some 0.2 ms, so call this for each round or epoch and not for each
  // step. After RestoreLatest, program_state() returns the bytes of the restored state.
  void SetProgramState(std::string bytes);
  std::string program_state() const;
  // The number of training steps in the newest committed checkpoint.
  int64_t durable_steps() const;
  // Null: the job keeps no checkpoints.
  CheckpointCatalog* checkpoints() const { return options_.checkpoints; }
  // Creates the variable with the slots of its optimizer. `with`: places it, as one shard, beside a
  // shard of another variable. REQUIRES: EvaluatedPerRow(spec.initializer).
  //
  // AlreadyExists: the name is taken. InvalidArgument: the spec or the partitioner is invalid.
  // NotFound, InvalidArgument: `with` names a variable or shard that does not exist.
  // ResourceExhausted: a ps has no memory for it; no shard is left behind.
  void CreateVariable(VariableSpec spec, std::optional<Colocation> with, StatusCallback done);
  // The current layout: an immutable snapshot.
  std::shared_ptr<const Layout> layout() const;
  // Reads current values, with one message to each ps for all requests. Waits for a ps that is
  // away. NotFound, InvalidArgument: bad requests.
  void Read(std::vector<VariableRead> reads, ResultCallback<std::vector<Tensor>> done);
  // Applies the writes exactly once on every ps that they touch, and then calls `done`. The writes
  // come after every step that the program has seen finished, and before every step that is
  // dispatched later.
  void Write(std::vector<StagedWrite> writes, StatusCallback done);

  // InvalidArgument: the arguments are larger than max_args_bytes. `what` names their owner in the
  // message ("step train"). Schedule and Run refuse them in the same way. Does not block.
  absl::Status CheckArgs(const Nest& args, absl::string_view what) const;

  // Queues a step. `accepted` is called when the step is queued: at once, unless max_queued_steps
  // steps wait. If an earlier step has failed, `accepted` gets that step's error, and the new step
  // is not queued. `result` is called when the step has finished (with its value), has failed, or
  // was cancelled (Reason::kBatchCancelled).
  //
  // With `once`, `accepted` may get one of these errors, and then the step is not queued and
  // `result` is not called. AlreadyExists: this number of the series has finished, in this run of
  // the program or in an earlier run whose state it continues. FailedPrecondition: the number is
  // queued or running. InvalidArgument: the step is read-only, or the number is not from 0 to 2^53.
  void Schedule(StepRequest request, ResultCallback<Nest> result, StatusCallback accepted);
  // Calls `done` with OK when no step is queued or in flight, or with the error of a step.
  void Join(StatusCallback done);
  // Calls `done` with true if no step is queued or in flight, and with false otherwise. If a step
  // has failed, calls it with the error of that step after the batch has been cancelled.
  void Done(ResultCallback<bool> done);
  // Runs a loop of steps. `value` is called for each finished step, in the order of finishing, and
  // for the last time before `done`. `done` gets OK when the loop is over. InvalidArgument: as
  // CheckArgs, or a loop with last_step finds no element in its data. Otherwise `done` gets the
  // first error of a step, after its batch has been cancelled.
  void Run(RunRequest request, std::function<void(Nest)> value, StatusCallback done);
  // The loop with this token makes no more steps. It is done when its steps in flight have ended,
  // and it does not count as an epoch. A loop that is over is not affected.
  void StopRun(uint64_t token);

  // Makes an iterator over the data, from its beginning, on every worker. A worker that rejoins
  // makes it again. REQUIRES: CheckArgs(args) is OK.
  ResourceId MakeIterator(std::string source, Nest args, bool leased);
  // Steps that are queued or running keep the iterator until they end.
  void DropIterator(ResourceId iterator);

  uint64_t job_seed() const { return options_.job_seed; }
  JobId job() const;
  // Epochs of training (RunEpoch) that are complete.
  int64_t epoch() const;
  // Training steps finished.
  int64_t step() const;
  // The factor on the learning rate for steps that are first dispatched from now on. A value that
  // is not finite leaves the factor unchanged and raises InvalidArgument in the same way as a
  // step's error.
  void SetLearningRateScale(double scale);

  // Ends the job. First every ps confirms that it is still the same process, then the end is
  // stored, and then workers and ps are told to exit with `exit_code`. `done` gets OK after that.
  // REQUIRES: Join has succeeded, and the program makes no further calls.
  void EndJob(int exit_code, StatusCallback done);

  // Continues the job with `num_ps` parameter servers. Steps in flight end, a checkpoint is made,
  // and all servers load it, cut and placed for the new number. New servers are ps N, N+1, ...; the
  // change waits until they have registered. Surplus servers, which are those with the highest
  // indices, are told to exit with 0. `done` is called when steps run again. The flags of the job
  // do not change: after a restart the coordinator takes the number from its own flags.
  //
  // FailedPrecondition: there is no catalog, another resize is under way, or the job is about to
  // end. InvalidArgument: the number is not allowed, or the partitioner cannot cut a variable for
  // it. Unavailable: a server that was to join has not registered within ps_timeout. Other errors
  // are those of writing the checkpoint. After each of these errors the number is unchanged and the
  // job goes on.
  void Resize(int num_ps, StatusCallback done);

  // Moves shards from servers that have more to do than others, as Resize changes their number: a
  // checkpoint is made, and all servers load it, cut and placed anew (arrangement.h). `done` is
  // called when steps run again, or at once if no arrangement is better. The load is that of five
  // to ten seconds, which ended up to ten seconds ago. A coordinator that later begins with a
  // checkpoint places by the job's rule again, and so does a resize; one that adopts what the
  // servers hold does not.
  //
  // FailedPrecondition: as for Resize. Unavailable (Reason::kNotReady): the load is not known yet.
  // Other errors are those of writing the checkpoint. After each of these errors the shards lie
  // where they did and the job goes on.
  struct Rebalanced {
    // Whether shards were moved.
    bool changed = false;
    // As in Arrangement.
    double before = 1, after = 1;
    int moved = 0, cut = 0;
  };
  void Rebalance(ResultCallback<Rebalanced> done);

  // The process was asked to end (SIGTERM). Dispatches nothing more and waits for the steps in
  // flight. Then every pending and later call of the program gets Cancelled (Reason::kJobOver), and
  // `done` is called: the process may exit (143). Workers and ps get no message; they wait for the
  // next coordinator. If EndJob was called before, the job's end is completed first.
  void Drain(std::function<void()> done);
  // This process cannot continue the job. From now on every call of the program returns `why`. An
  // embedded cluster calls it when its workers lose their GPUs, because only a restart of the
  // process makes the GPUs usable again. Has no effect after the job's end.
  void Fail(absl::Status why);

  // A copy of the current state, for status pages. Does not block.
  CoordinatorSnapshot Snapshot() const;
  // A parameter server or worker of the job.
  struct KnownTask {
    Role role = Role::kWorker;
    int index = 0;
    // Empty: it has not registered yet.
    std::string address;
  };
  // All of them that are known: parameter servers first, each role by index. Does not block.
  std::vector<KnownTask> Tasks() const;
  // Of each parameter server, by index. Does not block.
  std::vector<std::optional<BusiestVariable>> BusiestOfServers() const;
  // The number of entries of each structure that grows and shrinks while the job runs, by name.
  // Tests and benchmarks use the numbers to find structures that only grow.
  std::map<std::string, int64_t> Sizes() const;
  // The greatest staleness of a step that has finished since the last call. For one caller only.
  uint64_t TakeMaxStaleness();
  // Begins to keep what the next calls are about (StepSamples). For one caller only.
  void SampleSteps();
  // The next training step that is dispatched is asked for histograms of its gradients.
  void WantGradients();
  std::map<int, WorkerSteps> TakeWorkerSteps();
  GradientSample TakeGradients();
  std::map<uint64_t, int64_t> TakeStaleness();
  // Drops all completions and timers: no call is answered any more. For a process that is about to
  // end, and for the simulation's kill.
  void Abandon();

  // For the simulation.
  struct Inspection {
    // Ids that may still be applied: in flight, or queued with an id.
    std::vector<EntryId> open;
    // Finished steps and direct writes, with the ps that they committed to. After a rewind: only
    // those since the base.
    std::map<EntryId, std::vector<int>> finished;
    std::map<ResourceId, std::vector<std::pair<int64_t, int64_t>>> finished_positions;
    bool idle = false;
    // The incarnation of each ps that this coordinator knows.
    std::vector<Incarnation> ps;
    // The largest number of unacknowledged messages on any Steps stream.
    int unacknowledged = 0;
    // Set during a rewind: the number of finished steps that are still to be run again.
    std::optional<int64_t> steps_to_replay;
    // The lineage of the servers' state, once this coordinator has run steps on it.
    Epoch lineage;
  };
  Inspection Inspect() const;
  // Makes Inspect report finished entries. Call it before any step.
  void KeepHistory() { keep_history_ = true; }

 private:
  using Phase = CoordinatorSnapshot::Phase;
  class StepsListener;

  // The records are described in coordinator_records.h.
  using Claim = coordinator_records::Claim;
  using Ps = coordinator_records::Ps;
  using Worker = coordinator_records::Worker;
  using Step = coordinator_records::Step;
  using RunState = coordinator_records::RunState;
  using FenceWait = coordinator_records::FenceWait;
  using DirectWrite = coordinator_records::DirectWrite;
  using DirectRead = coordinator_records::DirectRead;
  using WorkerStream = coordinator_records::WorkerStream;

  // Handles one event, which is a call or an answer. An object of this class holds the lock while
  // it lives. Its destructor does what the event has made possible (Pump), releases the lock, and
  // then drains the outbox.
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
  // Makes stored_.row() durable, then dials.
  void BeginEpoch() DIVVY_REQUIRES(mu_);
  // Begins another epoch, above this one and above `above`.
  void RestartEpoch(Epoch above) DIVVY_REQUIRES(mu_);
  // Decides whether a task that registers may join. OK: the task is known now. The error is the
  // refusal.
  absl::Status Admit(const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  // Whether a ps with an index above all servers may wait for a resize.
  bool ComesBeforeItsResize(const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  // Checks a Register request without changing anything but the workers' reported numbers of
  // replicas.
  absl::Status CheckRegister(const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  // Checks that a worker that has attached fits the job. May give up workers that do not fit.
  absl::Status CheckAttached(const Worker& worker, const WorkerAttachReply& reply)
      DIVVY_REQUIRES(mu_);
  // Leaves kAttaching when all servers have attached and enough workers are known.
  void MaybeLoad() DIVVY_REQUIRES(mu_);
  bool BeforeRunning() const DIVVY_REQUIRES(mu_) {
    return phase_.Is(Phase::kAttaching) || phase_.Is(Phase::kChoosing) ||
           phase_.Is(Phase::kLoading);
  }
  // Asks the catalog again for the newest checkpoint. OnNewest gets the answer.
  void SearchCheckpoints() DIVVY_REQUIRES(mu_);
  void OnNewest(const absl::StatusOr<std::optional<JobState>>& newest) DIVVY_REQUIRES(mu_);
  void BeginChoosing() DIVVY_REQUIRES(mu_);
  void BeginLoading() DIVVY_REQUIRES(mu_);
  void FinishLoading() DIVVY_REQUIRES(mu_);
  void StartRunning() DIVVY_REQUIRES(mu_);
  // Answers calls of WhenRunning and begins reads and layout changes that waited.
  void ReleaseWaiters() DIVVY_REQUIRES(mu_);
  // Runs once a second and checks all timeouts.
  void Tick();
  // Logs what each task does if no step has finished for options_.watchdog.
  void WatchProgress(absl::Duration now) DIVVY_REQUIRES(mu_);
  // Lets rows of dynamic tables go, if it is time.
  void EvictRows(absl::Duration now) DIVVY_REQUIRES(mu_);
  std::string DescribeTasks() const DIVVY_REQUIRES(mu_);
  void ScheduleTick() DIVVY_REQUIRES(mu_);
  void FailJob(absl::Status error) override DIVVY_REQUIRES(mu_);
  // Takes all waiting completions. The returned tasks call each of them with `error`.
  std::vector<Task> TakeWaiters(const absl::Status& error) DIVVY_REQUIRES(mu_);
  // Continues the end of the job: the last Sync, the final checkpoint, then StoreEnd.
  void FinishEnding() DIVVY_REQUIRES(mu_);
  void StoreEnd() DIVVY_REQUIRES(mu_);
  // The error of every call once the process has drained.
  static absl::Status Drained();
  // Completes a drain when nothing is in flight and the store is complete.
  void DrainIfQuiet() DIVVY_REQUIRES(mu_);
  void TellDrained() DIVVY_REQUIRES(mu_);
  void OnEndStored(int exit_code) DIVVY_REQUIRES(mu_);
  // Sends Shutdown to all workers, and to all ps once the workers have answered.
  void ShutDownTasks(JobPhase::Shutdowns& shutdowns, int exit_code) DIVVY_REQUIRES(mu_);
  void OnShutDown() DIVVY_REQUIRES(mu_);
  // The fence of a call to the process `target`.
  Fence FenceFor(Incarnation target, SessionId session = kCoordinatorSession) const
      DIVVY_REQUIRES(mu_);
  // What the job waits for, the longest wait first.
  std::vector<CoordinatorSnapshot::Wait> Waits() const DIVVY_REQUIRES(mu_);
  std::optional<CoordinatorSnapshot::Work> WorkNow() const DIVVY_REQUIRES(mu_);

  // ---- parameter_servers.cc ----
  // Calls Attach in this epoch. OnPsAttached gets the answer.
  void AttachPs(Ps& ps) DIVVY_REQUIRES(mu_);
  void OnPsAttached(Ps& ps, const absl::StatusOr<PsAttachReply>& reply) DIVVY_REQUIRES(mu_);
  // A ps registers. OK: the coordinator uses its address from now on. The error is the refusal.
  absl::Status AdmitPs(const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  // Asks whether the known process still lives, because another one has registered in its place.
  void ProbePs(Ps& ps) DIVVY_REQUIRES(mu_);
  void OnProbed(Ps& ps, const absl::StatusOr<PsAttachReply>& reply, Incarnation asked)
      DIVVY_REQUIRES(mu_);
  void ProbePsAgain(Ps& ps) DIVVY_REQUIRES(mu_);
  // The known process is gone: its successor takes its place, or the server is lost.
  void PsGone(Ps& ps) DIVVY_REQUIRES(mu_);
  // Tells the ps to load its part of the state, or to begin empty. OnPsLoaded gets the answer.
  void LoadPs(Ps& ps) DIVVY_REQUIRES(mu_);
  void OnPsLoaded(Ps& ps, const absl::StatusOr<LoadReply>& reply, uint64_t layout_hash)
      DIVVY_REQUIRES(mu_);
  // Records a failed call to a ps. Returns the pause before the next try; nullopt: the call must
  // not be tried again.
  std::optional<absl::Duration> OnPsFailure(Ps& ps, const absl::Status& error) DIVVY_REQUIRES(mu_);
  // The server and its state are lost: rewinds the job, or ends it.
  void PsLost(Ps& ps, absl::string_view how) DIVVY_REQUIRES(mu_);
  // Calls `ps` after the lock is released, and then calls `on_reply` with the answer and `args`
  // under the lock. `on_reply` is not called if the core is gone or abandoned by then, or if
  // ServerSet::Same has become false for `ps`.
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
  // Runs `then` with `ps` and `args` after `wait`, if ServerSet::Same is still true for `ps`.
  template <typename... Params, typename... Args>
  void LaterAt(const Ps& ps, absl::Duration wait, void (CoordinatorCore::*then)(Ps&, Params...),
               Args... args) DIVVY_REQUIRES(mu_) {
    Later(wait, [index = ps.index, tries = ps.tries, then, args...](CoordinatorCore& core)
                    DIVVY_REQUIRES(core.mu_) {
                      if (core.servers_.Same(index, tries))
                        (core.*then)(core.servers_[index], args...);
                    });
  }
  // Handles a failed call to `ps`: calls `again` after a pause, unless the error ends the job or
  // shows that the server is another process.
  template <typename... Params, typename... Args>
  void RetryPs(Ps& ps, const absl::Status& error, void (CoordinatorCore::*again)(Ps&, Params...),
               Args... args) DIVVY_REQUIRES(mu_) {
    if (const auto wait = OnPsFailure(ps, error)) LaterAt(ps, *wait, again, args...);
  }
  // What to do after the loss of a server, for the error message.
  std::string RemedyOfLoss() const DIVVY_REQUIRES(mu_);
  // Ends the job if the ps has been silent for ps_timeout.
  void CheckPs(const Ps& ps, absl::Duration now) DIVVY_REQUIRES(mu_);
  // Sends the current sessions and horizon to every ps, in a Sync. Every ps knows them once
  // AllAcknowledged is true for the returned number.
  uint64_t WantSync() DIVVY_REQUIRES(mu_);
  // What every Sync of this moment says, without the fence and the number.
  SyncRequest MakeSync() const DIVVY_REQUIRES(mu_);
  void SendSync(Ps& ps) DIVVY_REQUIRES(mu_);
  void CallSync(Ps& ps, SyncRequest request) DIVVY_REQUIRES(mu_);
  // Whether the ps can take a Sync now. If not, a ps that has its state gets one later.
  bool MaySync(Ps& ps) DIVVY_REQUIRES(mu_);

  void OnSynced(Ps& ps, const absl::StatusOr<SyncReply>& reply) DIVVY_REQUIRES(mu_);
  bool AllAcknowledged(uint64_t seq) const DIVVY_REQUIRES(mu_) { return servers_.Acked() >= seq; }
  // Which entries are closed, for the next Sync.
  Horizon MakeHorizon() const DIVVY_REQUIRES(mu_);

  // ---- workers.cc ----
  // A worker registers. OK: it is known, and is attached. The error is the refusal.
  absl::Status AdmitWorker(const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  // Another process registers as a worker with a session. OK: the process with the session is gone.
  absl::Status ContestWorker(Worker& worker, const RegisterRequest& request) DIVVY_REQUIRES(mu_);
  void PingWorker(Worker& worker) DIVVY_REQUIRES(mu_);
  // The worker with this index and address; adds it if it is new.
  Worker& KnownWorker(int index, const std::string& address) DIVVY_REQUIRES(mu_);
  void AttachWorker(Worker& worker) DIVVY_REQUIRES(mu_);
  void AttachWorkerLater(Worker& worker) DIVVY_REQUIRES(mu_);
  void OnWorkerAttached(int index, uint64_t attempt, SessionId session,
                        absl::StatusOr<WorkerAttachReply> reply);
  // Whether the refusal means that the worker serves another job or another coordinator.
  bool ServesAnother(const absl::Status& refusal) const DIVVY_REQUIRES(mu_);
  // True: the refusal has ended the job.
  bool OnAttachRefused(Worker& worker, const absl::Status& refusal) DIVVY_REQUIRES(mu_);
  // No worker serves this coordinator: ends the job in this process.
  void YieldToOther(const absl::Status& refusal) DIVVY_REQUIRES(mu_);
  // Opens the worker's Steps stream, or opens it again after a break.
  void OpenSteps(Worker& worker) DIVVY_REQUIRES(mu_);
  void OnFrames(int index, uint64_t connection, std::vector<StreamFrame<FromWorker>> frames);
  void OnFrame(int index, uint64_t connection, StreamFrame<FromWorker> frame) DIVVY_REQUIRES(mu_);
  void OnBroken(int index, uint64_t connection);
  void HandleMessage(Worker& worker, FromWorker message) DIVVY_REQUIRES(mu_);
  // A completion for the creation of slots: an error refuses the worker's step.
  StatusCallback RefusalOfSlots(int worker, EntryId id);
  // A joining worker becomes ready for steps once every ps knows its session. True: at least one
  // worker has become ready.
  bool AdmitJoined() DIVVY_REQUIRES(mu_);
  // The worker is lost: ends its session and fences it.
  void LoseWorker(Worker& worker, absl::string_view why) DIVVY_REQUIRES(mu_);
  // Checks the worker's timeouts: its silence, its broken stream and the deadline of its step.
  void CheckWorker(Worker& worker, absl::Duration now) DIVVY_REQUIRES(mu_);
  // How much of `passed` counts towards the deadline of the worker's step.
  absl::Duration Counted(const Pong& pong, absl::Duration passed) const DIVVY_REQUIRES(mu_);
  // Every ps has acknowledged the fence: the steps of the lost worker are judged.
  void FinishFence(const FenceWait& fence) DIVVY_REQUIRES(mu_);

  // ---- steps.cc ----
  // Does everything that an event has made possible. Only Event calls Pump.
  void Pump() DIVVY_REQUIRES(mu_);
  // Pump's part while the process drains.
  void FinishStartedSteps() DIVVY_REQUIRES(mu_);
  // Pump's part while the job runs.
  void Continue() DIVVY_REQUIRES(mu_);
  enum class IdFor : uint8_t { kAny, kFirstValues };
  // Whether an entry may get an id now. kFirstValues: for a write of first values, which some of
  // the obstacles do not stop.
  bool MayGiveId(IdFor what = IdFor::kAny) const DIVVY_REQUIRES(mu_);
  // StepQueue::Host
  bool MayBeginStep() override DIVVY_REQUIRES(mu_);
  // Also for WriteQueue::Host.
  EntryId GiveId() override DIVVY_REQUIRES(mu_);
  void OnLogGrown() override DIVVY_REQUIRES(mu_) { recovery_.GiveUpFullLog(); }
  void OnFinished(const Step& step, const Report& report) override DIVVY_REQUIRES(mu_);
  bool FailUnlessRewindable(const std::string& why) override DIVVY_REQUIRES(mu_);
  void DispatchLater(absl::Duration wait) override DIVVY_REQUIRES(mu_);
  void NoteStored(const StoredMark& mark) DIVVY_REQUIRES(mu_);
  // Whether no step waits or runs, and no rewind is under way.
  bool Idle() const DIVVY_REQUIRES(mu_);
  // If a step's error is stored, or the job has failed: makes sure that `raise` is called with this
  // error, and returns true. `again` repeats the call if another call raises the error first.
  bool EndsWithError(StatusCallback raise, std::function<void()> again) DIVVY_REQUIRES(mu_);

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
  // False: the call has been answered, or begins again when its obstacle is gone.
  bool MayPlanWrite(const std::vector<StagedWrite>& writes, const StatusCallback& done)
      DIVVY_REQUIRES(mu_);
  // Calls Write again, in a blocking task of the executor.
  void WriteLater(std::vector<StagedWrite> writes, StatusCallback done);
  void QueueWrite(WriteQueue::CommitPlan plan, StatusCallback done) DIVVY_REQUIRES(mu_);
  // Creates the slots that gradients in the writes need. False: all of them exist.
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
  // Cuts the read into requests for the current layout.
  void PlanRead(DirectRead& read) DIVVY_REQUIRES(mu_);
  void SendReads() DIVVY_REQUIRES(mu_);
  void SendRead(Ps& ps, std::shared_ptr<DirectRead> read) DIVVY_REQUIRES(mu_);
  void OnRead(Ps& ps, const absl::StatusOr<PullReply>& reply, std::shared_ptr<DirectRead> read)
      DIVVY_REQUIRES(mu_);

  // ---- checkpoints.cc ----
  // Whether a process that was asked to end still has a checkpoint to make.
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
  void PollAgain(int ps, CheckpointId id) override DIVVY_REQUIRES(mu_);
  void Commit(const JobState& state, std::vector<std::vector<SavedSlice>> parts) override
      DIVVY_REQUIRES(mu_);
  void Collect(CheckpointId base, CheckpointId below) override DIVVY_REQUIRES(mu_);
  void OnWorkContinues() override DIVVY_REQUIRES(mu_);
  void Persist(StoreChange change) override DIVVY_REQUIRES(mu_) {
    PutThen(std::move(change), [](CoordinatorCore&) {});
  }
  void OnSaved(const CheckpointMaker::Cut& cut) override DIVVY_REQUIRES(mu_);
  void OnDiskFailure(const absl::Status& why) override DIVVY_REQUIRES(mu_);
  // The program uses the job without a restore: in kChoosing, it begins anew.
  void ChooseEmpty() DIVVY_REQUIRES(mu_);
  // The program restores: continues with the servers' state or the newest checkpoint.
  void ChooseCheckpoint() DIVVY_REQUIRES(mu_);
  // Restores everything in `state` that belongs to the program or to the coordinator alone.
  void RestoreState(const JobState& state) DIVVY_REQUIRES(mu_);
  // Makes the shards that are not loaded: those of declared variables, and those in the redo log.
  void MakeDeclared() DIVVY_REQUIRES(mu_);
  // A ps cannot load the checkpoint. True: the job tries an older checkpoint.
  bool FallBack(const absl::Status& error) DIVVY_REQUIRES(mu_);

  // ---- adopt.cc ----
  // Computes whether the servers' state can be adopted.
  void NoteHeldByServers() DIVVY_REQUIRES(mu_);
  // Adopts the servers' state: first makes the state row with the next ordinals durable, then tells
  // the servers to keep what they hold.
  void StoreAdoption() DIVVY_REQUIRES(mu_);
  // A server has restarted during the adoption: the choice is made again.
  void TakeBackAdoption() DIVVY_REQUIRES(mu_);
  void FinishAdopting() DIVVY_REQUIRES(mu_);
  // Writes the changes of StoredState::TakeChange to the store.
  void StoreState() override DIVVY_REQUIRES(mu_);

  // ---- replay.cc ----
  // Whether the loss of a server leads to a rewind; otherwise it ends the job.
  bool Replays() const DIVVY_REQUIRES(mu_) {
    return recovery_.log().kept() && !origin_.is_unsaved();
  }
  bool MayAttachWorkers() const DIVVY_REQUIRES(mu_) {
    return phase_.Is(Phase::kRunning) || phase_.Is(Phase::kReplaying);
  }
  void Rewind(std::string why) override DIVVY_REQUIRES(mu_);
  // Begins a new epoch in which all servers load the base.
  void StartRewind(std::string why) DIVVY_REQUIRES(mu_);
  // Ends the sessions of all workers.
  void DropSessions() DIVVY_REQUIRES(mu_);
  // Removes from Inspect's history the entries that the base covers.
  void ForgetCoveredHistory() DIVVY_REQUIRES(mu_);
  // The base cannot be loaded: the job fails.
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
  // OK: a resize may begin. The errors are those of Resize.
  absl::Status MayResize(int num_ps) const DIVVY_REQUIRES(mu_);
  // OK: a resize or a rebalance may begin. The texts are for the error.
  absl::Status MayChangeServers(absl::string_view what_stays, absl::string_view change) const
      DIVVY_REQUIRES(mu_);
  void BeginRebalance(ResultCallback<Rebalanced> done) DIVVY_REQUIRES(mu_);
  // Moves shards if the load has been uneven for long (--rebalance=auto).
  void RebalanceByItself(absl::Duration now) DIVVY_REQUIRES(mu_);
  // Whether operations that change the servers' state wait for a resize.
  bool ResizeWaits() const DIVVY_REQUIRES(mu_);
  // Whether a resize waits for nothing but its checkpoint.
  bool ResizeIsQuiet() const DIVVY_REQUIRES(mu_);
  // Whether the servers hold exactly the state of the cut.
  bool IsUnchangedSince(const CheckpointMaker::Cut& cut) const DIVVY_REQUIRES(mu_);
  // The checkpoint of a resize is committed: switches to the new servers.
  void ChangeServers(const JobState& saved) DIVVY_REQUIRES(mu_);

  // A task that runs `body` with the lock held and drains the outbox afterwards. It does nothing if
  // the core is gone or abandoned by then.
  Task Guarded(std::function<void(CoordinatorCore&)> body);
  // Makes the change durable, then runs `then` as Guarded does. If the store fails, the job fails.
  void PutThen(StoreChange change, std::function<void(CoordinatorCore&)> then) DIVVY_REQUIRES(mu_);
  // Runs `body` as Guarded does, after `delay`.
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
  // Calls workers_.
  Passes passes_ DIVVY_GUARDED_BY(mu_);
  LayoutPlan layout_plan_ DIVVY_GUARDED_BY(mu_);
  // Calls layout_plan_, workers_, and this as its Host.
  LayoutChanges layout_changes_ DIVVY_GUARDED_BY(mu_);
  // Calls steps_, writes_, passes_, workers_, ids_, and this as its Host.
  Recovery recovery_ DIVVY_GUARDED_BY(mu_);
  // Calls passes_, workers_, the redo log, and this as its Host.
  StepQueue steps_ DIVVY_GUARDED_BY(mu_);
  // Calls steps_, workers_, and this as its Host.
  WriteQueue writes_ DIVVY_GUARDED_BY(mu_);
  // Calls workers_, store_, and this as its Host.
  CheckpointMaker checkpoint_maker_ DIVVY_GUARDED_BY(mu_);

  EntryIds ids_ DIVVY_GUARDED_BY(mu_);
  std::set<std::shared_ptr<DirectRead>> open_reads_ DIVVY_GUARDED_BY(mu_);

  // Has a value once the process was asked to end.
  std::optional<std::vector<std::function<void()>>> when_drained_ DIVVY_GUARDED_BY(mu_);

  // Calls steps_, passes_ and servers_.
  StoredState stored_ DIVVY_GUARDED_BY(mu_);
  StateOrigin origin_ DIVVY_GUARDED_BY(mu_);
  Resizing resizing_ DIVVY_GUARDED_BY(mu_);

  bool keep_history_ = false;
  Inspection history_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_COORDINATOR_CORE_H_
