// Makes checkpoints: one cut over all servers while training goes on.
//
//   1. NAMING      no worker is being fenced, no step is half applied. The serial is made durable
//      before it is used
//   2. HOLDING     every worker is told to begin no commit. The coordinator's own writes and layout
//      changes wait. Computing goes on
//   3. all held: every entry is now applied everywhere or nowhere. That is the cut
//   4. MARKING     every ps marks what it holds. From then on commits do no harm
//   5. WRITING     all have marked: the workers are released. The ps write their parts behind the
//      commits
//   6. COMMITTING  all have written: the catalog makes the checkpoint whole by one rename
//
// Until 5, a lost or new worker, or 5 s, gives the checkpoint up. Until 6, a lost ps or a disk's
// error does.
// It is tried again under another serial.
#ifndef DIVVY_COORDINATOR_CORE_CHECKPOINT_MAKER_H_
#define DIVVY_COORDINATOR_CORE_CHECKPOINT_MAKER_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/outbox.h"
#include "cluster/clients.h"
#include "cluster/job_state.h"
#include "cluster/messages.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/store.h"
#include "coordinator/core/worker_set.h"

namespace divvy {

// Decides when a checkpoint is made, makes it, and answers those that asked for it. Not
// thread-safe: the coordinator's lock guards it.
class CheckpointMaker {
 public:
  using SaveCallback = ResultCallback<CheckpointId>;

  // Commits of the workers wait for so long at most.
  static constexpr absl::Duration kLongestHold = WorkerSet::kLongestHold;
  // The pause after a hold that was given up. Where nobody waits for the checkpoint it doubles each
  // time.
  static constexpr absl::Duration kTryAgain = WorkerSet::kTryHoldAgain;

  // The job at the moment of the cut.
  struct Cut {
    JobState state;
    int num_ps = 0;
    bool is_final = false;       // of a job that ends
    bool is_last = false;        // of a process that ends, with nothing in flight
    bool is_for_resize = false;  // a resize waited for it
    EntryId next_id;             // a higher one later means that something has happened since
  };

  // What the maker asks and tells the coordinator that owns it.
  class Host {
   public:
    virtual ~Host() = default;
    // Whether every entry is, or can be made to be, applied everywhere or nowhere, and all servers
    // answer.
    virtual bool MayCut() const = 0;
    // Whether a write of the program is under way: the cut waits for it.
    virtual bool HasOpenWrites() const = 0;
    // Whether a checkpoint is needed now for another reason than the schedule.
    virtual bool NeedsCheckpoint() const = 0;
    // Whether something waits for the next checkpoint, so that it is tried again soon.
    virtual bool AwaitsCheckpoint() const = 0;
    virtual bool IsRunning() const = 0;
    virtual bool IsDraining() const = 0;
    // Takes a new name and stores it. Calls OnNamed when it is durable.
    virtual CheckpointId Name() = 0;
    virtual Cut CutNow(CheckpointId id) = 0;
    // Asks every ps, with RequestFor, and gives its answer to OnSnapshot; LookAgain asks one of
    // them later.
    virtual void SendSnapshots(CheckpointId id) = 0;
    virtual void LookAgain(int ps, CheckpointId id) = 0;
    // Both work where they may block, and then call OnCommitted and OnCollected.
    virtual void Commit(const JobState& state, std::vector<std::vector<SavedSlice>> parts) = 0;
    virtual void Collect(CheckpointId base, CheckpointId below) = 0;
    // Commits and layout changes go on.
    virtual void WorkGoesOn() = 0;
    // The checkpoint is on the disk: servers that are lost go back to it. Comes before all that
    // OnSaved causes.
    virtual void MoveBase(const JobState& state) = 0;
    // Makes the change durable. A store that fails ends the job.
    virtual void Persist(StoreChange change) = 0;
    virtual void OnSaved(const Cut& cut) = 0;
    // A disk failed the checkpoint.
    virtual void OnDiskFailure(const absl::Status& why) = 0;
    virtual void FailJob(absl::Status error) = 0;
  };

  // REQUIRES: the references outlive it.
  CheckpointMaker(const CoordinatorOptions& options, Clock& clock, Outbox& outbox, Store& store,
                  WorkerSet& workers, Host& host)
      : options_(options),
        clock_(clock),
        outbox_(outbox),
        store_(store),
        workers_(workers),
        host_(host) {
    StartSchedule();
  }

  // ---- who wants one ----
  void Want(SaveCallback done) { wanted_.push_back(std::move(done)); }
  // The job ends, and does so after one more checkpoint if `wanted`.
  void WantFinal(bool wanted);
  bool final_is_wanted() const { return final_wanted_; }
  bool is_asked_for() const { return !wanted_.empty(); }
  // Whether the last one of a process that was asked to end has been made, or could not be.
  bool last_is_saved() const { return last_saved_; }
  // The next scheduled one is due a whole interval from now.
  void StartSchedule() { next_ = clock_.Elapsed() + options_.checkpoint_every; }

  // ---- events ----
  // Begins one if it is due and possible.
  void MaybeBegin();
  void CheckTime(absl::Duration now);
  void OnNamed(CheckpointId id);
  void OnHeld(int worker, uint64_t number);
  // Cuts if nothing is waited for any more: to be called when a write of the program has ended,
  // too.
  void MaybeCut();
  // What to ask this ps of checkpoint `id`, but for the fence. Nullopt: nothing any more.
  std::optional<SnapshotRequest> RequestFor(int ps, CheckpointId id) const;
  // Whether the answer to such a request, that waited for the part to be written or not, is still
  // of use.
  bool Awaits(int ps, CheckpointId id, bool waited) const;
  // An answer of use, or an error of the disk or of the request.
  void OnSnapshot(int ps, const absl::StatusOr<SnapshotReply>& reply);
  void OnCommitted(CheckpointId id, const absl::Status& committed);
  void OnCollected(const std::vector<CheckpointId>& removed);
  // A worker has come or gone that is not held.
  void WorkersChanged();
  // The job goes back to the newest checkpoint. Whoever waits for the one under way waits for the
  // next one.
  void Drop();
  // The job has failed: moves the completions that wait to `calls`.
  void FailAll(const absl::Status& error, std::vector<Task>& calls);

  // ---- state ----
  // Whether workers are held for a cut: nothing that would change a ps is sent to it.
  bool holding() const {
    return run_ && (run_->stage == Stage::kHolding || run_->stage == Stage::kMarking);
  }
  bool before_release() const { return run_ && run_->stage < Stage::kWriting; }
  bool after_release() const { return run_ && run_->stage >= Stage::kWriting; }
  std::optional<CheckpointId> current() const {
    return run_ ? std::optional<CheckpointId>(run_->id) : std::nullopt;
  }
  absl::Duration longest_hold() const { return longest_hold_; }

  // The newest one that was committed, or restored from, and the steps in it.
  void SetNewest(std::optional<CheckpointId> id, int64_t steps) {
    newest_ = id, durable_steps_ = steps;
  }
  const std::optional<CheckpointId>& newest() const { return newest_; }
  int64_t durable_steps() const { return durable_steps_; }

 private:
  enum class Stage : uint8_t { kNaming, kHolding, kMarking, kWriting, kCommitting };

  // The checkpoint that is being made.
  struct Run {
    Stage stage = Stage::kNaming;
    CheckpointId id;
    std::set<int> waiting;  // kHolding: workers; kMarking, kWriting: ps
    absl::Duration held_since;
    Cut cut;
    std::vector<std::vector<SavedSlice>> parts;  // by ps
    uint64_t bytes = 0;
    std::vector<SaveCallback> saves;  // that were asked for before the cut
  };

  bool IsDue() const;
  absl::Duration Pause() const;
  bool MayBegin() const;
  bool IsAt(CheckpointId id, Stage stage) const {
    return run_ && run_->id == id && run_->stage == stage;
  }
  void WaitForAllPs();
  void OnMarked(int ps);
  void OnWritten(int ps, const SnapshotReply& reply);
  void GiveUp(const absl::Status& why);
  void ForgetRows(std::vector<CheckpointId> ids);
  void Collect(CheckpointId below);

  const CoordinatorOptions& options_;
  Clock& clock_;
  Outbox& outbox_;
  Store& store_;
  WorkerSet& workers_;
  Host& host_;

  std::optional<Run> run_;
  std::vector<SaveCallback> wanted_;
  bool final_wanted_ = false;
  bool last_saved_ = false;
  absl::Duration final_since_;
  absl::Duration next_, longest_hold_;
  absl::Duration given_up_at_ = -absl::InfiniteDuration();
  // In a row, for no fault of a disk.
  int given_up_ = 0;
  // old checkpoints are being removed
  bool collecting_ = false;
  // The catalog is at work, though the checkpoint may have been dropped.
  bool committing_ = false;
  std::optional<CheckpointId> newest_;
  int64_t durable_steps_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_CHECKPOINT_MAKER_H_
