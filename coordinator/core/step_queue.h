// The steps of a job: queued steps, running steps, the loops that make them, and the effect of
// their errors.
//
// A step is queued, dispatched to a worker, and then reported or lost; step_rules.h decides what
// follows. A step that may run again goes to the head of the queue. The first error of a step is
// kept until a call of the program raises it. Before it is raised, the steps of its batch are
// cancelled (semantics of TensorFlow's ClusterCoordinator, docs/reference/semantics_coverage.md).
#ifndef DIVVY_COORDINATOR_CORE_STEP_QUEUE_H_
#define DIVVY_COORDINATOR_CORE_STEP_QUEUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/outbox.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/limited_log.h"
#include "coordinator/core/passes.h"
#include "coordinator/core/redo_log.h"
#include "coordinator/core/step_rules.h"
#include "coordinator/core/step_samples.h"
#include "coordinator/core/step_times.h"
#include "coordinator/core/worker_set.h"
#include "protocol/messages.h"

namespace divvy {

// Calls Passes, WorkerSet, RedoLog and its Host. Never blocks; answers go through the outbox. Not
// thread-safe: the coordinator's lock guards it.
class StepQueue {
 public:
  using Worker = coordinator_records::Worker;
  using Step = coordinator_records::Step;
  using RunState = coordinator_records::RunState;
  using OpenSteps = std::map<EntryId, std::shared_ptr<Step>>;

  // The calls that StepQueue makes to the coordinator that owns it. No method blocks.
  class Host {
   public:
    virtual ~Host() = default;
    // Stores which passes are under way. Called before the first positions of a pass are given.
    virtual void StoreState() = 0;
    // Whether a step may be dispatched for the first time. If so, GiveId gives its id. If a write
    // stops the step, the host notes that a step waits, so that later writes let it go first
    // (WriteQueue::MakesStepsWait).
    virtual bool MayBeginStep() = 0;
    virtual EntryId GiveId() = 0;
    // The redo log has grown.
    virtual void OnLogGrown() = 0;
    // The step has finished with this report.
    virtual void OnFinished(const Step& step, const Report& report) = 0;
    // A step that had finished before a rewind has been run again.
    virtual void SettleReplayed(const std::shared_ptr<Step>& step, StepVerdict verdict,
                                const absl::Status& error) = 0;
    // Fails the job because of `why` if the servers cannot return to their last common state.
    // False: the job has failed.
    virtual bool FailUnlessRewindable(const std::string& why) = 0;
    // Rewinds all servers. Does nothing once the end of the job is certain, because nobody reads
    // the state any more.
    virtual void Rewind(std::string why) = 0;
    // A step may be dispatched again after `wait`.
    virtual void DispatchLater(absl::Duration wait) = 0;
  };

  // The counts of steps that are part of the job's state.
  struct Totals {
    int64_t finished_steps = 0;
    int64_t finished_reads = 0;
    int64_t next_ordinal = 0;
    int64_t epochs = 0;
    // The tick at which a restored state goes on. StepQueue::tick has the current one.
    uint32_t tick = 0;
  };

  // REQUIRES: the references outlive it.
  StepQueue(const CoordinatorOptions& options, const Clock& clock, Outbox& outbox,
            WorkerSet& workers, Passes& passes, RedoLog& log, Host& host)
      : options_(options),
        clock_(clock),
        outbox_(outbox),
        workers_(workers),
        passes_(passes),
        log_(log),
        host_(host),
        said_(clock, outbox) {}

  // ---- the program's calls ----

  // If a step's error is kept: returns true, and `raise` gets the error once the batch has been
  // cancelled. `again` repeats the call if another call raises the error first.
  bool EndsWithError(StatusCallback raise, std::function<void()> again);
  // The calls of CoordinatorCore with the same names.
  void Schedule(StepRequest request, ResultCallback<Nest> result, StatusCallback accepted);
  void Join(StatusCallback done, std::function<void()> again) {
    joins_.push_back({std::move(done), std::move(again), nullptr});
  }
  void Run(RunRequest request, std::function<void(Nest)> value, StatusCallback done);
  void StopRun(uint64_t token);
  void SetLearningRateScale(double scale);
  double learning_rate_scale() const { return learning_rate_scale_; }
  // Dispatch::tick of what begins now: minutes in which the job has run, as of the last NoteTime.
  // So all that one event begins has the minute that the store has.
  uint32_t tick() const { return tick_; }
  void NoteTime();
  // Keeps `error` until a call raises it. Does nothing if an error is kept already.
  void StoreError(absl::Status error);

  // ---- what an event has made possible; the coordinator calls these after each event ----

  // Raises the error that is kept, once the batch has been cancelled.
  void MaybeRaise();
  // Queues steps that wait for room in the queue, and dispatches every step for which a worker has
  // room.
  void DispatchAll();
  // Answers the loops that are over.
  void CompleteRuns();
  // Answers the calls that wait for all steps, if no step is left.
  void CompleteJoins();

  // ---- events ----

  // A worker reports the end of an attempt. Does nothing if the worker does not have this attempt.
  void OnReport(Worker& worker, Report report);
  // The step's worker was lost and is fenced: no server applies anything of that attempt any more.
  void OnFenced(const std::shared_ptr<Step>& step, int worker);
  // The worker has run a step for longer than was expected. The steps that wait there beyond
  // queue_ahead are given back and run elsewhere.
  void RecallWaiting(Worker& worker);
  // The slots that the step needs cannot be made. The step fails with `why`, and the worker is told
  // to drop it.
  void Refuse(int worker, EntryId id, const absl::Status& why);
  // A write was applied. Open steps come after it, because they have not begun to commit.
  void OnWritten();
  // The store has the state of the moment when lost_ordinals() was `lost_ordinals`.
  void NoteStored(int64_t lost_ordinals);
  // The job has failed: moves the waiting completions, with everything they hold, to `calls`, and
  // forgets all steps.
  void FailAll(const absl::Status& error, std::vector<Task>& calls);

  // ---- replay (recovery.h) ----

  // The servers rewind, which undoes the effects of open steps. The open steps wait for Resume.
  // REQUIRES: no worker has a session.
  void Rewind();
  // A replayed step is open now, or is closed again.
  void BeginReplayed(const std::shared_ptr<Step>& step) { open_.emplace(step->id, step); }
  void EndReplayed(Step& step);
  // The replay is complete: the open steps are dispatched first.
  void Resume();
  // The ready worker for `step`: the one with the most room among those that have returned it least
  // often. A worker that rests is not chosen. Null: the step waits, because no worker has room, or
  // because those that have room returned it twice or more, and one without room did so less often.
  Worker* PickWorker(const Step& step) { return Choose(step).worker; }
  // Whether the worker gets no steps now, because it returned steps and finished none.
  bool Rests(const Worker& worker) const { return worker.rests_until > clock_.Elapsed(); }
  // What the step may take; at most ahead_time, also where nothing is known.
  absl::Duration Expected(const Step& step) const;
  // Whether the worker may get this step too, which may wait there.
  bool HasRoom(const Worker& worker, const Step& step) const;
  // Sends the step to the worker as a new attempt.
  void Send(const std::shared_ptr<Step>& step, Worker& worker);

  // ---- state ----

  // Steps that have an id and are not closed.
  const OpenSteps& open() const { return open_; }
  // Steps at a worker, or waiting for their worker's fence.
  int64_t in_flight() const { return in_flight_; }
  // Steps that wait, including those beyond max_queued_steps.
  int64_t num_queued() const { return static_cast<int64_t>(queue_.size() + waiting_.size()); }
  // Whether no step waits or runs.
  bool is_idle() const { return queue_.empty() && waiting_.empty() && in_flight_ == 0; }
  bool has_runs() const { return !runs_.empty(); }
  // Whether a step waits to be queued, or a loop makes steps.
  bool is_wanted() const { return !waiting_.empty() || !runs_.empty(); }
  const RunState* first_run() const { return runs_.empty() ? nullptr : runs_.front().get(); }
  // Whether a step was applied by some of its servers when its worker was lost, and has not been
  // run again yet.
  bool IsHalfApplied() const;
  // How many positions open steps have of leased data.
  int64_t NumLeased() const;
  // The leases of open steps. A cut does not count their positions as read.
  std::vector<InputLease> OpenLeases() const;
  const Totals& totals() const { return totals_; }
  // How many ordinals belong to steps that are closed.
  int64_t NumClosedOrdinals() const;
  // Continues from the counts of a state.
  void RestoreState(const Totals& totals);
  // Whether a training step has finished since.
  bool has_trained() const { return totals_.finished_steps > restored_steps_; }
  // Ordinals of steps that failed or were cancelled in this life of the coordinator.
  int64_t lost_ordinals() const { return lost_ordinals_; }
  // The ids of failed and cancelled steps that the store does not know of yet, each with the value
  // of lost_ordinals() after it was counted. Until the store knows of an id, the servers treat it
  // as open.
  const std::deque<std::pair<int64_t, EntryId>>& lost_ids() const { return lost_ids_; }
  // When a step was last closed, or NoteProgress was called.
  absl::Duration last_progress() const { return last_progress_; }
  void NoteProgress(absl::Duration now) { last_progress_ = now; }
  // When the oldest step that has not ended was queued. Nullopt: there is none.
  std::optional<absl::Duration> oldest_since() const;
  // Runs of steps that workers have reported, without those that they gave back before they began,
  // and how many of them finished a step that had not finished before.
  int64_t num_runs() const { return num_runs_; }
  int64_t num_counted_runs() const { return num_counted_runs_; }
  // What event files tell of steps.
  StepSamples& samples() { return samples_; }
  // The greatest staleness of a step since the last call.
  uint64_t TakeMaxStaleness() { return std::exchange(max_staleness_, 0); }
  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const;

 private:
  using ErrorWaiter = coordinator_records::ErrorWaiter;
  using WaitingSchedule = coordinator_records::WaitingSchedule;

  // Queues steps that wait for room in the queue.
  void AdmitSchedules();
  struct Choice {
    Worker* worker = nullptr;
    // Some worker has room, perhaps not for this step.
    bool has_room = false;
  };
  Choice Choose(const Step& step);
  // Whether a step with a worker may be dispatched now.
  bool MayBegin(const Step& step);
  void Begin(const std::shared_ptr<Step>& step, Worker& worker);
  // Dispatches the next step. False: there is none, no worker has room for it, or it may not begin
  // now.
  bool DispatchOne();
  // False: the step's data has ended, and the step is closed.
  bool Open(const std::shared_ptr<Step>& step, Worker& worker);
  // The next step of a loop, not yet queued. Null: no loop wants one now.
  std::shared_ptr<Step> NextOfRuns();
  // Whether the loop wants another step now. At the end of a pass that is not the last one, begins
  // the next pass.
  bool RunMakesMore(RunState& run);
  // The facts about the step for step_rules.h.
  StepFacts FactsOf(const Step& step) const;
  // Counts the worker's process if it has lost a GPU during the step.
  void NoteDeviceLost(const Worker& worker, Step& step, const absl::Status& why);
  // Delays the next attempt of a step that its worker could not run.
  void Postpone(Step& step);
  // The worker could not run a step. If that happens again and again, it gets no steps for a time.
  void Rest(Worker& worker);
  // Carries out a judgement. If it needs a rewind, the rewind comes last.
  void Settle(const std::shared_ptr<Step>& step, const StepJudgement& judgement, Nest value,
              absl::Status error);
  void SettleAs(const std::shared_ptr<Step>& step, StepVerdict verdict, Nest value,
                absl::Status error);
  // The error that the program gets for a step that is not run again.
  absl::Status GaveUp(const Step& step, absl::Status error) const;
  // The step has finished with `value`: counts it and answers its caller or its loop.
  void Finish(const std::shared_ptr<Step>& step, Nest value);
  // The step is over with this result; its iterators lose a user.
  void Close(const std::shared_ptr<Step>& step, absl::StatusOr<Nest> result);
  // Begins to cancel the batch: queued steps at once, steps in flight by a message. A step that
  // some ps has applied is carried through.
  void StartCancelling();
  // Notes a run that was reported, or whose worker was lost (no outcome).
  void Trace(const Step& step, int worker, std::optional<StepOutcome> outcome,
             std::optional<StepTrace> parts);
  // LogOpen and LogFinished write the step's entry in the redo log.
  void LogOpen(const Step& step);
  void LogFinished(Step& step);

  const CoordinatorOptions& options_;
  const Clock& clock_;
  Outbox& outbox_;
  WorkerSet& workers_;
  Passes& passes_;
  RedoLog& log_;
  Host& host_;
  LimitedLog said_;

  // Schedule calls that wait because max_queued_steps steps are queued.
  std::deque<WaitingSchedule> waiting_;
  std::deque<std::shared_ptr<Step>> queue_;
  OpenSteps open_;
  int64_t in_flight_ = 0;
  StepTimes times_;
  StepSamples samples_;
  std::deque<std::shared_ptr<RunState>> runs_;
  std::vector<ErrorWaiter> joins_;
  Totals totals_;
  uint32_t tick_ = 0;
  // The tick at `ticks_since_`.
  uint32_t first_tick_ = 0;
  absl::Duration ticks_since_ = clock_.Elapsed();
  int64_t restored_steps_ = 0;
  double learning_rate_scale_ = 1;
  // The error of the first step that failed, until a call raises it.
  absl::Status error_;
  bool cancelling_ = false;
  std::deque<ErrorWaiter> error_waiters_;
  int64_t lost_ordinals_ = 0;
  std::deque<std::pair<int64_t, EntryId>> lost_ids_;
  uint64_t max_staleness_ = 0;
  int64_t num_runs_ = 0, num_counted_runs_ = 0;
  absl::Duration last_progress_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STEP_QUEUE_H_
