// Recovery: a rewind to the last cut and a replay of everything since. It follows the loss of a
// parameter server, or a half-applied step that no run can complete.
//
// 1. The next epoch begins. All sessions and their work are dropped, and so is a checkpoint under
//    way. No server applies anything of the old epoch any more.
// 2. ATTACHING: all servers answer in the new epoch.
// 3. LOADING: all servers load the base, which is the newest committed checkpoint or the empty
//    state. Variables made since then are made again.
// 4. REPLAYING: the redo log is run. An entry begins when every entry that had finished before it
//    began has finished again (replay_order.h), so the program finds the state that it has seen.
//    Each write runs alone. Results that the program already has are not delivered again.
// 5. RUNNING: steps that had not finished go first. Then everything that waited (reads, writes,
//    Join) goes on.
//
// All servers rewind, not only the lost one. So there is one cut and one way to recover. The only
// assumption about a step function is that its result depends on nothing but its args, inputs,
// variables and seed().
//
// A loss in step 4 or later starts again at step 1. In steps 2 and 3 no server has new state yet,
// so a restarted server just takes the place of the lost one. Each loss counts towards
// --max_recoveries.
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
#include "protocol/messages.h"

namespace divvy {

// Owns the redo log, counts rewinds, and replays the log. Calls StepQueue, WriteQueue, Passes,
// WorkerSet, EntryIds and its Host. Never blocks. Not thread-safe: the coordinator's lock guards
// it.
class Recovery {
 public:
  using Worker = coordinator_records::Worker;
  using Step = coordinator_records::Step;

  // The calls that Recovery makes to the coordinator that owns it. No method blocks.
  class Host {
   public:
    virtual ~Host() = default;
    // All entries before next() have begun. The host should send a Sync when EntryIds::NeedsSync
    // says so.
    virtual void OnReplayAdvanced() = 0;
    // A step that had finished before cannot be run again. The job has to fail.
    virtual void OnReplayFailed(const Step& step, const absl::Status& error) = 0;
  };

  // A rewind under way.
  struct Rewind {
    std::string why;
    absl::Duration since;
    // Set if the job was ending when the rewind began.
    std::optional<JobPhase::Ending> ending;
    // Iterators that the program has dropped and that only steps of the redo log use. Workers that
    // join get them too.
    std::map<ResourceId, std::shared_ptr<const MakeResource>> iterators = {};
    // The number of finished steps from next() on, which are still to be run again.
    int64_t steps_left = 0;
    // Its first value.
    int64_t steps = 0;
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

  // Everything since the newest checkpoint.
  RedoLog& log() { return log_; }
  const RedoLog& log() const { return log_; }
  // Ends a full log if no checkpoint can ever make room. A log that is being replayed is kept to
  // its end.
  void GiveUpFullLog();
  // An error of Reason::kDisk: the log has been full for --checkpoint_stall_timeout, and no
  // checkpoint has made room in that time. `waits`: the job runs, and no checkpoint is being
  // written. Otherwise the time starts again.
  absl::Status CheckLog(absl::Duration now, bool waits);

  // ---- rewind ----

  // Counts a loss. An error: there were more than --max_recoveries within 10 minutes, and the job
  // has to fail.
  absl::Status CountRewind(absl::string_view why);
  int64_t num_rewinds() const { return num_rewinds_; }
  // How many steps had finished and were run again.
  int64_t num_replayed() const { return num_replayed_; }
  // Begins a rewind, and drops a rewind that was under way. `ending`: set if the job was ending.
  void Begin(std::string why, std::optional<JobPhase::Ending> ending);
  // Determines which entries are run again. REQUIRES: Begin was called, and nothing of the old
  // epoch is under way.
  void Prepare();
  // Null: no rewind is under way.
  const Rewind* rewind() const { return rewind_ ? &*rewind_ : nullptr; }
  Rewind* rewind() { return rewind_ ? &*rewind_ : nullptr; }
  // Entries from this id on have not begun again.
  EntryId next() const { return rewind_ ? next_ : ids_.next(); }
  // How many finished steps have not been run again yet.
  int64_t NumMissing() const;

  // ---- replay ----

  // Begins every entry that may begin. True: everything that had finished has finished again, and
  // the caller must call End. REQUIRES: the phase is REPLAYING.
  bool Replay();
  // A step has been run again, with this verdict. REQUIRES: a rewind is under way.
  void Settle(const std::shared_ptr<Step>& step, StepVerdict verdict, const absl::Status& error);
  // All servers have applied the write.
  void OnWritten(EntryId id);
  // Ends the rewind and returns its record.
  Rewind End() { return *std::exchange(rewind_, std::nullopt); }
  // The job has failed: forgets the rewind.
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
  // Times of the rewinds in the last 10 minutes.
  std::deque<absl::Duration> rewinds_;
  int64_t num_rewinds_ = 0, num_replayed_ = 0;
  std::optional<Rewind> rewind_;
  // These members belong to the rewind under way.
  EntryId next_;
  ReplayOrder order_;
  // Replayed steps whose worker was lost.
  std::deque<std::shared_ptr<Step>> again_;
  // Steps that come after entries with higher ids.
  std::deque<std::shared_ptr<Step>> deferred_;
  // The write that is being replayed. 0: no write is being replayed.
  EntryId write_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_RECOVERY_H_
