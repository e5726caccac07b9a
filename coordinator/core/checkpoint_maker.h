// Makes checkpoints: one consistent cut over all servers, while training goes on.
//
// 1. NAMING: begins when no worker is being fenced and no step is half applied. The checkpoint's
//    serial is made durable before it is used.
// 2. HOLDING: every worker is told to begin no commit. The coordinator's own writes and layout
//    changes wait. Computation goes on.
// 3. All workers are held. Every entry is now applied on all of its servers or on none. This is the
//    cut.
// 4. MARKING: every ps marks the state that it holds. A commit after the mark does not change the
//    checkpoint.
// 5. WRITING: all ps have marked, and the workers are released. The ps write their parts while they
//    apply commits.
// 6. COMMITTING: all ps have written. The catalog makes the checkpoint whole with one rename.
//
// An attempt is abandoned for one of three reasons. (a) Before step 5, a worker is lost or joins,
// or 5 s pass: another attempt follows after a pause. (b) A rewind, because a ps was lost: calls
// that wait get the next checkpoint. (c) A disk reports an error: calls that wait get the error,
// and the next attempt comes by the schedule. Each attempt has a serial of its own.
#ifndef DIVVY_COORDINATOR_CORE_CHECKPOINT_MAKER_H_
#define DIVVY_COORDINATOR_CORE_CHECKPOINT_MAKER_H_

#include <cstdint>
#include <map>
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
#include "base/outbox.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_snapshot.h"
#include "coordinator/core/store.h"
#include "coordinator/core/worker_set.h"
#include "protocol/clients.h"
#include "protocol/job_state.h"
#include "protocol/messages.h"

namespace divvy {

// Decides when a checkpoint is due, makes it, and answers the calls that asked for it. Never
// blocks. Not thread-safe: the coordinator's lock guards it.
class CheckpointMaker {
 public:
  using SaveCallback = ResultCallback<CheckpointId>;

  // The longest time that commits of the workers are held.
  static constexpr absl::Duration kLongestHold = WorkerSet::kLongestHold;
  // The pause after an abandoned hold. While no call waits for the checkpoint, it doubles with each
  // abandoned hold, up to one minute.
  static constexpr absl::Duration kTryAgain = WorkerSet::kTryHoldAgain;

  // The job at the moment of the cut.
  struct Cut {
    JobState state;
    int num_ps = 0;
    // The final checkpoint of a job that ends.
    bool ends_job = false;
    // The last checkpoint of a process that was asked to end. Nothing is in flight. The job goes on
    // in another process.
    bool ends_process = false;
    // A resize waits for the checkpoint.
    bool is_for_resize = false;
    // The next entry id at the cut. A higher one later means that something has happened since.
    EntryId next_id;
  };

  // The calls that the maker makes to the coordinator that owns it. No method blocks.
  class Host {
   public:
    virtual ~Host() = default;
    // Whether a checkpoint may begin: the job runs or ends, all servers answer, no step is half
    // applied, no worker is being fenced, no layout change or hold for writes is under way, and no
    // variable waits for its first values.
    virtual bool MayCut() const = 0;
    // Whether a write of the program is under way. The cut waits for it.
    virtual bool HasOpenWrites() const = 0;
    // Whether a checkpoint is needed now for a reason other than the schedule, such as a half-full
    // redo log.
    virtual bool NeedsCheckpoint() const = 0;
    // Whether an operation waits for the next checkpoint. If so, an abandoned attempt is repeated
    // soon.
    virtual bool AwaitsCheckpoint() const = 0;
    virtual bool IsRunning() const = 0;
    virtual bool IsDraining() const = 0;
    // Takes a new checkpoint id and stores it. Calls OnNamed when the id is durable.
    virtual CheckpointId Name() = 0;
    // The state of the job at this moment.
    virtual Cut CutNow(CheckpointId id) = 0;
    // Sends RequestFor(ps, id) to every ps and passes each answer to OnSnapshot. PollAgain does the
    // same for one ps after a pause.
    virtual void SendSnapshots(CheckpointId id) = 0;
    virtual void PollAgain(int ps, CheckpointId id) = 0;
    // Both run on a thread that may block. They then call OnCommitted and OnCollected.
    virtual void Commit(const JobState& state, std::vector<std::vector<SavedSlice>> parts) = 0;
    virtual void Collect(CheckpointId base, CheckpointId below) = 0;
    // The hold is over: commits and layout changes may continue.
    virtual void OnWorkContinues() = 0;
    // The checkpoint is on the disk. From now on a rewind returns to it. Called before OnSaved and
    // all its effects.
    virtual void MoveBase(const JobState& state) = 0;
    // Makes the change durable. If the store fails, the job fails.
    virtual void Persist(StoreChange change) = 0;
    // The checkpoint of this cut is committed.
    virtual void OnSaved(const Cut& cut) = 0;
    // The attempt failed because of a disk.
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

  // ---- requests ----
  // Asks for a checkpoint whose cut is taken after this call. `done` gets its id once it is
  // committed, or the error.
  void Want(SaveCallback done) { wanted_.push_back(std::move(done)); }
  // The job ends. `wanted`: it ends only after one more checkpoint.
  void WantFinal(bool wanted);
  bool final_is_wanted() const { return final_wanted_; }
  bool is_asked_for() const { return !wanted_.empty(); }
  // Whether a process that was asked to end has made its last checkpoint, or has failed to.
  bool last_is_saved() const { return last_saved_; }
  // Restarts the schedule: the next checkpoint is due one interval from now.
  void StartSchedule() { next_ = clock_.Elapsed() + options_.checkpoint_every; }

  // ---- events ----
  // Begins a checkpoint if one is due and possible.
  void MaybeBegin();
  // Called at each tick: abandons a hold that has lasted too long, and begins a checkpoint that is
  // due.
  void CheckTime(absl::Duration now);
  // The id is durable: holds the workers.
  void OnNamed(CheckpointId id);
  // The worker answers hold `number`: it begins no commit.
  void OnHeld(int worker, uint64_t number);
  // Takes the cut if all workers are held and no write of the program is under way. Call it also
  // when such a write has ended.
  void MaybeCut();
  // The request to this ps for checkpoint `id`, without the fence. Nullopt: this ps has nothing
  // more to do for it.
  std::optional<SnapshotRequest> RequestFor(int ps, CheckpointId id) const;
  // Whether an answer to such a request still counts. `waited`: the request told the ps to answer
  // after it has written its part.
  bool Awaits(int ps, CheckpointId id, bool waited) const;
  // REQUIRES: Awaits. `reply`: the ps' answer, or an error of its disk or of the request.
  void OnSnapshot(int ps, const absl::StatusOr<SnapshotReply>& reply);
  // The catalog has committed checkpoint `id`, or could not.
  void OnCommitted(CheckpointId id, const absl::Status& committed);
  // The catalog has removed these checkpoints.
  void OnCollected(const std::vector<CheckpointId>& removed);
  // A worker that is not held has joined, or one was lost.
  void WorkersChanged();
  // The job rewinds to the newest checkpoint, and the attempt under way is dropped. Calls that
  // waited for it wait for the next one.
  void Drop();
  // The job has failed. Moves all waiting completions to `calls`; the caller runs them without the
  // lock.
  void FailAll(const absl::Status& error, std::vector<Task>& calls);

  // ---- state ----
  // Whether workers are held for a cut. While they are, the coordinator sends no request that would
  // change a ps.
  bool holding() const {
    return run_ && (run_->stage == Stage::kHolding || run_->stage == Stage::kMarking);
  }
  bool before_release() const { return run_ && run_->stage < Stage::kWriting; }
  bool after_release() const { return run_ && run_->stage >= Stage::kWriting; }
  // The checkpoint that is being made.
  std::optional<CheckpointId> current() const {
    return run_ ? std::optional<CheckpointId>(run_->id) : std::nullopt;
  }
  // The longest hold so far.
  absl::Duration longest_hold() const { return longest_hold_; }
  // What the ps have written of the checkpoint under way. Nullopt: none is being written.
  std::optional<CoordinatorSnapshot::Work> work() const;
  // The checkpoints of this coordinator.
  const CheckpointStats& stats() const { return stats_; }

  // The newest checkpoint that was committed or restored from, and the number of training steps in
  // it.
  void SetNewest(std::optional<CheckpointId> id, int64_t steps) {
    newest_ = id, durable_steps_ = steps;
  }
  const std::optional<CheckpointId>& newest() const { return newest_; }
  int64_t durable_steps() const { return durable_steps_; }

 private:
  enum class Stage : uint8_t { kNaming, kHolding, kMarking, kWriting, kCommitting };

  // The attempt under way.
  struct Run {
    Stage stage = Stage::kNaming;
    CheckpointId id;
    absl::Duration began;
    // The tasks that have not answered: in kHolding workers, in kMarking and kWriting ps.
    std::set<int> waiting;
    absl::Duration held_since;
    Cut cut;
    std::vector<std::vector<SavedSlice>> parts;  // by ps
    uint64_t bytes = 0;
    absl::Duration writing_since;
    // By ps: the bytes written, and those to write.
    std::map<int, std::pair<int64_t, int64_t>> written;
    // The calls that asked for a checkpoint before the cut.
    std::vector<SaveCallback> saves;
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
  // The hold is over.
  void NoteHold();
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
  CheckpointStats stats_;
  absl::Duration given_up_at_ = -absl::InfiniteDuration();
  // Attempts in a row that were abandoned for a reason other than a disk.
  int given_up_ = 0;
  // Old checkpoints are being removed.
  bool collecting_ = false;
  // The catalog is committing. The attempt itself may already have been dropped.
  bool committing_ = false;
  std::optional<CheckpointId> newest_;
  int64_t durable_steps_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_CHECKPOINT_MAKER_H_
