// The steps of a job: those that wait, those that run, the loops that make them, and what their
// errors do.
//
// A step is queued, dispatched to a worker, and reported or lost; step_rules.h judges it. One that
// may be run again goes to the head of the queue. The first error of a step is kept until a call of
// the program raises it, and before it is raised the steps of its batch are cancelled (semantics of
// TensorFlow's ClusterCoordinator, docs/semantics_coverage.md).
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
#include "cluster/messages.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/limited_log.h"
#include "coordinator/core/passes.h"
#include "coordinator/core/redo_log.h"
#include "coordinator/core/step_rules.h"
#include "coordinator/core/worker_set.h"

namespace divvy {

// Calls Passes, WorkerSet and RedoLog, and its Host. Not thread-safe: the coordinator's lock guards
// it.
class StepQueue {
 public:
  using Worker = coordinator_records::Worker;
  using Step = coordinator_records::Step;
  using RunState = coordinator_records::RunState;
  using OpenSteps = std::map<EntryId, std::shared_ptr<Step>>;

  // What it asks and tells the coordinator that owns it.
  class Host {
   public:
    virtual ~Host() = default;
    // Tells the store of passes that are under way: before the first positions of a pass are given.
    virtual void StoreState() = 0;
    // Whether a step may be dispatched that never was before. If so, GiveId gives its id. If not,
    // what it waits for may take note of that, and let it go first.
    virtual bool MayBeginStep() = 0;
    virtual EntryId GiveId() = 0;
    // The redo log has grown.
    virtual void OnLogGrown() = 0;
    // The report finishes the step.
    virtual void OnFinished(const Step& step, const Report& report) = 0;
    // A step that had finished before a rewind has been run again.
    virtual void SettleReplayed(const std::shared_ptr<Step>& step, StepVerdict verdict,
                                const absl::Status& error) = 0;
    // Fails the job because of `why` if the servers cannot go back to their last common state.
    // False: it has failed.
    virtual bool FailUnlessRewindable(const std::string& why) = 0;
    // Takes all servers back. Does nothing where the end of the job is certain: nobody reads the
    // state any more.
    virtual void Rewind(std::string why) = 0;
    // A step may be dispatched again after `wait`.
    virtual void DispatchLater(absl::Duration wait) = 0;
  };

  // What the state of the job counts of steps.
  struct Totals {
    int64_t finished_steps = 0;
    int64_t finished_reads = 0;
    int64_t next_ordinal = 0;
    int64_t epochs = 0;
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

  // If a step's error is kept: `raise` gets it when the batch has been cancelled, and true is
  // returned.
  // `again` repeats the call, should another call raise the error.
  bool RaisesInstead(StatusCallback raise, std::function<void()> again);
  void Schedule(StepRequest request, ResultCallback<Nest> result, StatusCallback accepted);
  void Join(StatusCallback done, std::function<void()> again) {
    joins_.push_back({std::move(done), std::move(again), nullptr});
  }
  void Run(RunRequest request, std::function<void(Nest)> value, StatusCallback done);
  void StopRun(uint64_t token);
  void SetLearningRateScale(double scale);
  double learning_rate_scale() const { return learning_rate_scale_; }
  // Keeps the first error until a call raises it.
  void StoreError(absl::Status error);

  // ---- what may happen now; the coordinator calls these after each event ----

  // Raises the error that is kept, once the batch has been cancelled.
  void MaybeRaise();
  // Queues steps that wait for room, and dispatches all that workers have room for.
  void DispatchAll();
  // Answers loops that are over.
  void CompleteRuns();
  // Answers those that wait for all steps, if there are none.
  void CompleteJoins();

  // ---- events ----

  // Does nothing if the worker does not have this attempt of the step.
  void OnReport(Worker& worker, Report report);
  // A worker was lost that had the step, and no server applies anything of that attempt any more.
  void OnFenced(const std::shared_ptr<Step>& step, int worker);
  // The slots that the step needs cannot be made: the worker is told to drop it, and it has failed.
  void Refuse(int worker, EntryId id, const absl::Status& why);
  // A write was applied. Steps that are open come after it: they have not begun to commit.
  void OnWritten();
  // The store has the state of when so many steps were lost.
  void NoteStored(int64_t lost_ordinals);
  // The job has failed: moves the completions that wait to `calls`, with all that they hold, and
  // forgets all steps.
  void FailAll(const absl::Status& error, std::vector<Task>& calls);

  // ---- replay (recovery.h) ----

  // The servers go back: what open steps have done is undone. They wait for Resume. REQUIRES: no
  // worker has a session.
  void Rewind();
  // A step that is run again is open now, or closed again.
  void BeginReplayed(const std::shared_ptr<Step>& step) { open_.emplace(step->id, step); }
  void EndReplayed(Step& step);
  // All that had finished has been run again: the open steps are dispatched first.
  void Resume();
  // The ready worker with the most room for `step`, one that has returned it only where no other
  // has room. Null: there is none.
  Worker* PickWorker(const Step& step);
  bool HasRoom(const Worker& worker) const {
    return static_cast<int>(worker.in_flight.size()) < worker.slots + options_.queue_ahead;
  }
  void Send(const std::shared_ptr<Step>& step, Worker& worker);

  // ---- state ----

  // Those that have an id and are not closed.
  const OpenSteps& open() const { return open_; }
  // Steps in flight or being fenced.
  int64_t in_flight() const { return in_flight_; }
  int64_t num_queued() const { return static_cast<int64_t>(queue_.size() + waiting_.size()); }
  // Whether no step waits or runs.
  bool is_idle() const { return queue_.empty() && waiting_.empty() && in_flight_ == 0; }
  bool has_runs() const { return !runs_.empty(); }
  // Whether a step waits to be queued, or a loop to make steps.
  bool is_wanted() const { return !waiting_.empty() || !runs_.empty(); }
  const RunState* first_run() const { return runs_.empty() ? nullptr : runs_.front().get(); }
  // Whether some step was applied by some of its servers when its worker was lost, and has not been
  // run again.
  bool IsHalfApplied() const;
  // What all open steps read: no cut has it.
  std::vector<InputLease> OpenLeases() const;
  const Totals& totals() const { return totals_; }
  // How many ordinals were given to steps that are closed now.
  int64_t NumClosedOrdinals() const;
  // Goes on from a state.
  void TakeUp(const Totals& totals) { totals_ = totals; }
  // Of steps that failed or were cancelled in this life.
  int64_t lost_ordinals() const { return lost_ordinals_; }
  // Those of which the store has not been told: each with lost_ordinals() of then. To the servers
  // they are open until it has.
  const std::deque<std::pair<int64_t, EntryId>>& lost_ids() const { return lost_ids_; }
  // When a step was closed, or NoteProgress was called.
  absl::Duration last_progress() const { return last_progress_; }
  void NoteProgress(absl::Duration now) { last_progress_ = now; }
  // The greatest staleness of a step since the last call.
  uint64_t TakeMaxStaleness() { return std::exchange(max_staleness_, 0); }
  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const;

 private:
  using Raiser = coordinator_records::Raiser;
  using WaitingSchedule = coordinator_records::WaitingSchedule;

  void AdmitSchedules();
  bool DispatchOne();
  // False: the step's data has ended, and it is closed.
  bool Open(const std::shared_ptr<Step>& step, Worker& worker);
  std::shared_ptr<Step> NextOfRuns();
  bool RunMakesMore(RunState& run);
  StepFacts FactsOf(const Step& step) const;
  void NoteDeviceLost(const Worker& worker, Step& step, const absl::Status& why);
  void PutOff(Step& step);
  void Settle(const std::shared_ptr<Step>& step, const StepJudgement& judgement, Nest value,
              absl::Status error);
  void SettleAs(const std::shared_ptr<Step>& step, StepVerdict verdict, Nest value,
                absl::Status error);
  absl::Status GaveUp(const Step& step, absl::Status error) const;
  void Finish(const std::shared_ptr<Step>& step, Nest value);
  void Close(const std::shared_ptr<Step>& step, absl::StatusOr<Nest> result);
  void StartCancelling();
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

  std::deque<WaitingSchedule> waiting_;  // beyond max_queued_steps
  std::deque<std::shared_ptr<Step>> queue_;
  OpenSteps open_;
  int64_t in_flight_ = 0;
  std::deque<std::shared_ptr<RunState>> runs_;
  std::vector<Raiser> joins_;
  Totals totals_;
  double learning_rate_scale_ = 1;
  // Of the first step that failed, until a call raises it.
  absl::Status error_;
  bool cancelling_ = false;
  std::deque<Raiser> raisers_;
  int64_t lost_ordinals_ = 0;
  std::deque<std::pair<int64_t, EntryId>> lost_ids_;
  uint64_t max_staleness_ = 0;
  absl::Duration last_progress_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STEP_QUEUE_H_
