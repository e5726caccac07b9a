// The program's own writes and their order among steps.
//
// A write that meets open steps has an exact place: on every server it comes after each step that
// finished before it was applied, and before every other step. So a replay can put it in the same
// place (replay_order.h), and no step that the program saw finished is undone.
//
// 1. HOLDING: every worker is told to begin no commit. A step whose commit is under way finishes,
//    and is reported before its worker answers.
// 2. HELD: all workers have answered. Every entry is applied everywhere or nowhere. The waiting
//    writes are applied.
// 3. All writes are applied. Steps that are open come after them and are numbered accordingly.
//    Commits go on.
//
// The hold is abandoned if a worker is lost in step 1, because that worker's step may be half
// applied, or if step 1 takes longer than WorkerSet::kLongestHold. Another hold begins after a
// pause, once no step is half applied.
//
// If no step is open, no worker is held. Steps that are scheduled meanwhile are dispatched after
// the write is applied. Otherwise a step could commit before the write on one server and after it
// on another. While such a step waits, a write that has not begun lets the step go first. So
// neither steps nor writes wait for ever.
#ifndef DIVVY_COORDINATOR_CORE_WRITE_QUEUE_H_
#define DIVVY_COORDINATOR_CORE_WRITE_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/executor.h"
#include "base/outbox.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/eviction_schedule.h"
#include "coordinator/core/step_queue.h"
#include "coordinator/core/worker_set.h"
#include "protocol/messages.h"

namespace divvy {

// Calls StepQueue (to ask which steps are open), WorkerSet and its Host. Never blocks; answers go
// through the outbox. Not thread-safe: the coordinator's lock guards it.
class WriteQueue {
 public:
  using Worker = coordinator_records::Worker;
  using Write = coordinator_records::DirectWrite;
  using OpenWrites = std::map<EntryId, std::shared_ptr<Write>>;
  using CommitPlan = std::map<int, std::vector<CommitPart>>;  // by ps

  // The calls that WriteQueue makes to the coordinator that owns it. No method blocks.
  class Host {
   public:
    virtual ~Host() = default;
    // Whether a write may get an id and be applied now. If so, GiveId gives the id.
    virtual bool MayBeginWrite() const = 0;
    virtual EntryId GiveId() = 0;
    // Whether the workers may be told to hold: no worker is being fenced, and no checkpoint is
    // about to hold them.
    virtual bool MayHold() const = 0;
    // The write has begun. From here on the redo log has it.
    virtual void OnWriteBegun(const Write& write) = 0;
    // Sends RequestFor to the ps and passes its answer to OnCommitted.
    virtual void SendCommit(int ps, const std::shared_ptr<Write>& write) = 0;
  };

  // REQUIRES: the references outlive it.
  WriteQueue(const Clock& clock, Outbox& outbox, WorkerSet& workers, StepQueue& steps, Host& host)
      : clock_(clock), outbox_(outbox), workers_(workers), steps_(steps), host_(host) {}

  // ---- writes ----

  // Queues a write. `done` is called when all its servers have applied it.
  void Add(CommitPlan plan, StatusCallback done);
  // Queues the next write that lets rows of dynamic tables go, if it is time for one and none is
  // under way. `epoch` is the current one.
  void AddEviction(const Layout& layout, absl::Duration now, Epoch epoch);
  // Applies a write of the redo log again. If the program's call still waits, it is answered.
  void Replay(EntryId id, const CommitPlan& plan, uint32_t tick);
  // Begins the writes that may begin, and holds the workers for writes that must wait.
  void Start();
  // Begins the writes that let steps go first. Call it after those steps have been dispatched.
  void StartBehindSteps();
  // Whether a step that is not open yet must wait for writes that began while no step was open. If
  // so, notes that a step waits; writes that have not begun then let the step go first.
  bool MakesStepsWait();

  // ---- events ----

  // The request for this ps, without the fence. Nullopt: this ps has nothing more to do.
  std::optional<CommitRequest> RequestFor(int ps, const Write& write) const;
  bool IsOpen(EntryId id) const { return open_.count(id) > 0; }
  // The ps has applied the write. True: all its servers have, and the write is not open any more.
  // The caller then calls Answer.
  bool OnCommitted(int ps, Write& write);
  // Answers the call that waits for the write.
  void Answer(Write& write);
  // If the other workers are held, a worker that joins is held too.
  void HoldIfOthersAre(Worker& joining);
  // Whether `number` is the number of the current hold.
  bool IsHold(uint64_t number) const { return hold_ && hold_->number == number; }
  // The worker begins no commit. After the last worker's answer the writes may begin.
  void OnHeld(int worker);
  // Ends the hold if all its writes are applied. True: the hold has ended, and work that waited for
  // its end may continue.
  bool MaybeEndHold();
  // Releases the workers if not all of them have answered.
  void GiveUpHold();
  // The workers' sessions are over. The hold ends with them.
  void DropHold() { hold_.reset(); }
  // Called at each tick: abandons a hold that takes too long.
  void CheckHold(absl::Duration now);
  // The job has failed: moves the waiting completions to `calls`, those of open writes first, and
  // forgets all writes.
  void FailAll(const absl::Status& error, std::vector<Task>& calls);

  // ---- state ----

  // Writes that have an id and that not all servers have applied.
  const OpenWrites& open() const { return open_; }
  // Whether a write waits for an id.
  bool has_waiting() const { return !waiting_.empty(); }
  bool is_holding() const { return hold_.has_value(); }
  struct HoldWait {
    int worker = 0;
    absl::Duration since;
  };
  // The first worker that a hold waits for, and since when.
  std::optional<HoldWait> WaitsFor() const;
  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const;

 private:
  struct Hold {
    uint64_t number = 0;
    absl::Duration since;
    // The workers that have not answered yet.
    std::set<int> waiting;
    // All workers have answered: writes are applied now.
    bool held = false;
    // How many more writes this hold applies. Writes that come later wait for the next hold;
    // otherwise no step would ever commit.
    size_t admits = 0;
  };

  bool MayWriteNow() const;
  void Begin(const std::shared_ptr<Write>& write);
  void Send(const std::shared_ptr<Write>& write);
  void BeginHold();
  void Admit();
  void Release();

  const Clock& clock_;
  Outbox& outbox_;
  WorkerSet& workers_;
  StepQueue& steps_;
  Host& host_;

  OpenWrites open_;
  // Writes without an id.
  std::deque<std::shared_ptr<Write>> waiting_;
  std::optional<Hold> hold_;
  // Steps have waited for writes that began while no step was open. The next writes let them go
  // first.
  bool steps_first_ = false;
  // The number of holds begun.
  uint64_t holds_ = 0;
  absl::Duration given_up_ = -absl::InfiniteDuration();
  EvictionSchedule evictions_;
  // A write of evictions_ is not applied yet.
  bool is_evicting_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_WRITE_QUEUE_H_
