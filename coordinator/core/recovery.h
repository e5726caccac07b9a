// Back to the last cut and forward again: what becomes of a job that has lost a parameter server,
// or whose state holds half a step that no run can complete.
//
//   1. the next epoch: sessions and what they were doing are dropped, so is a checkpoint under way.
//      Nothing of the old epoch is applied any more
//   2. ATTACHING   all servers answer in the new epoch
//   3. LOADING     all of them load the base: the newest committed checkpoint, or nothing. What was
//      made since is made again
//   4. REPLAYING   the redo log is run: an entry begins when all that had finished before it began
//      have finished again (replay_order.h), so the program finds
//                  what it saw; each write runs alone. What the program saw finished is not told
//                  again
//   5. RUNNING     steps that had not finished go first; what waited (reads, writes, Join) goes on
//
// All servers go back, not only the lost one: so there is one cut and one way to recover, and
// nothing is assumed of step functions but that they depend on their args, inputs, variables and
// seed() alone.
//
// A loss from 4 on begins at 1 again. In 2 and 3 nothing stands on a server yet: its successor
// takes its place. Each loss counts for --max_recoveries.
#ifndef DIVVY_COORDINATOR_CORE_RECOVERY_H_
#define DIVVY_COORDINATOR_CORE_RECOVERY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/outbox.h"
#include "cluster/messages.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/entry_ids.h"
#include "coordinator/core/job_phase.h"
#include "coordinator/core/passes.h"
#include "coordinator/core/redo_log.h"
#include "coordinator/core/replay_order.h"
#include "coordinator/core/step_queue.h"
#include "coordinator/core/worker_set.h"
#include "coordinator/core/write_queue.h"

namespace divvy {

// Owns the redo log, counts rewinds, and runs the log again. Calls StepQueue, WriteQueue, Passes,
// WorkerSet and EntryIds, and its Host. Not thread-safe: the coordinator's lock guards it.
class Recovery {
 public:
  using Worker = coordinator_records::Worker;
  using Step = coordinator_records::Step;

  // What it tells the coordinator that owns it.
  class Host {
   public:
    virtual ~Host() = default;
    // All entries before next() have begun. The servers should be told now and then
    // (EntryIds::NeedsSync).
    virtual void OnReplayAdvanced() = 0;
    // A step that had finished cannot be run again: the job has failed.
    virtual void OnReplayFailed(const Step& step, const absl::Status& error) = 0;
  };

  // A rewind that is under way.
  struct Rewind {
    std::string why;
    absl::Duration since;
    std::optional<JobPhase::Ending> ending;  // the job was
    // The iterators that only steps of the redo log use: the program has dropped them. Workers that
    // join are told of them.
    std::map<ResourceId, std::shared_ptr<const MakeResource>> iterators = {};
    int64_t steps_left = 0;  // finished ones from next() on
  };

  // REQUIRES: the references outlive it.
  Recovery(const CoordinatorOptions& options, const Clock& clock, Outbox& outbox,
           WorkerSet& workers, Passes& passes, EntryIds& ids, StepQueue& steps, WriteQueue& writes,
           Host& host)
      : options_(options),
        clock_(clock),
        outbox_(outbox),
        workers_(workers),
        passes_(passes),
        ids_(ids),
        steps_(steps),
        writes_(writes),
        host_(host),
        log_(options.redo_log_bytes) {}

  // ---- the redo log ----

  // What came after the newest checkpoint.
  RedoLog& log() { return log_; }
  const RedoLog& log() const { return log_; }
  // Ends a log that is full where no checkpoint can ever make room. Not one that is being run: it
  // is needed to its end.
  void GiveUpFullLog();
  // An error: the log has been full for --checkpoint_stall_timeout, and no checkpoint that makes
  // room has been written meanwhile. `waits`: the job runs, and no checkpoint is being written.
  absl::Status CheckLog(absl::Duration now, bool waits);

  // ---- back ----

  // Counts a loss. An error: there were too many within 10 minutes, and the job fails.
  absl::Status CountRewind(absl::string_view why);
  int64_t num_rewinds() const { return num_rewinds_; }
  // A rewind is under way from here on. One that was already begins anew. `ending`: the job was.
  void Begin(std::string why, std::optional<JobPhase::Ending> ending);
  // What is to be run again. REQUIRES: Begin, and nothing of the old epoch is under way.
  void Prepare();
  // Null: no rewind is under way.
  const Rewind* rewind() const { return rewind_ ? &*rewind_ : nullptr; }
  Rewind* rewind() { return rewind_ ? &*rewind_ : nullptr; }
  // Entries from here on are not begun.
  EntryId next() const { return rewind_ ? next_ : ids_.next(); }
  // How many of the steps that finished are not there again.
  int64_t NumMissing() const;

  // ---- forward ----

  // Begins the entries that may begin. True: all that had finished is there again, and End is to be
  // called. REQUIRES: the phase is REPLAYING.
  bool Replay();
  // A step has been run again. REQUIRES: a rewind is under way.
  void Settle(const std::shared_ptr<Step>& step, StepVerdict verdict, const absl::Status& error);
  // All servers have applied the write.
  void OnWritten(EntryId id);
  Rewind End() { return *std::exchange(rewind_, std::nullopt); }
  // The job has failed.
  void FailAll() { rewind_.reset(); }

  std::map<std::string, int64_t> Sizes() const;

 private:
  bool ReplayOne();
  bool ReplayEntry(const RedoLog::Entry& entry, bool may_begin);
  std::shared_ptr<Step> StepAgain(const RedoLog::Entry& entry) const;
  void Advance(EntryId begun);
  Worker* PickReplayer(const Step& step);
  bool ReplayStep(const std::shared_ptr<Step>& step);

  const CoordinatorOptions& options_;
  const Clock& clock_;
  Outbox& outbox_;
  WorkerSet& workers_;
  Passes& passes_;
  EntryIds& ids_;
  StepQueue& steps_;
  WriteQueue& writes_;
  Host& host_;

  RedoLog log_;
  std::optional<absl::Duration> full_since_;
  std::deque<absl::Duration> rewinds_;  // in the last 10 minutes
  int64_t num_rewinds_ = 0;
  std::optional<Rewind> rewind_;
  // Of the rewind under way.
  EntryId next_;
  ReplayOrder order_;
  std::deque<std::shared_ptr<Step>> again_;     // replayed steps whose worker was lost
  std::deque<std::shared_ptr<Step>> deferred_;  // that come after entries with higher ids
  EntryId write_;                               // that is being replayed; 0: none
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_RECOVERY_H_
