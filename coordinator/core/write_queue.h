// The program's own writes, and where they stand among steps.
//
// A write beside open steps is exact: it comes after every step that finished before it was
// applied, and before every other, on all servers alike. So a replay can put it where it was
// (replay_order.h), and no step that the program saw finished is undone.
//
//   1. HOLDING    every worker is told to begin no commit. A step whose commit is under way
//      finishes, and is reported before its worker answers
//   2. HELD       all have answered: every entry is applied everywhere or nowhere. The writes that
//      wait are applied
//   3. all are applied: the steps that are open come after them, and are numbered so. Commits go on
//
// The hold is given up if a worker is lost in 1, because that worker's step may be half applied,
// and if 1 takes longer than WorkerSet::kLongestHold. Another hold begins after a pause, once no
// step is half applied.
//
// Where no step is open nobody is held. Steps that are scheduled meanwhile are dispatched when the
// write is applied: else one could commit before it on one server and after it on another. Writes
// that are called for after such a step begin behind it, so that neither steps nor writes wait for
// ever.
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
#include "cluster/messages.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/step_queue.h"
#include "coordinator/core/worker_set.h"

namespace divvy {

// Calls StepQueue (to ask what is open) and WorkerSet, and its Host. Not thread-safe: the
// coordinator's lock guards it.
class WriteQueue {
 public:
  using Worker = coordinator_records::Worker;
  using Write = coordinator_records::DirectWrite;
  using OpenWrites = std::map<EntryId, std::shared_ptr<Write>>;
  using CommitPlan = std::map<int, std::vector<CommitPart>>;  // by ps

  // What it asks and tells the coordinator that owns it.
  class Host {
   public:
    virtual ~Host() = default;
    // Whether a write may be given an id and applied now. If so, GiveId gives it.
    virtual bool MayBeginWrite() const = 0;
    virtual EntryId GiveId() = 0;
    // Whether the workers may be told to hold: no worker is being fenced, and no checkpoint is
    // about to hold them.
    virtual bool MayHold() const = 0;
    // The write has begun: the redo log has it from here on.
    virtual void OnWriteBegun(const Write& write) = 0;
    // Sends RequestFor to the ps, and gives its answer to OnCommitted.
    virtual void SendCommit(int ps, const std::shared_ptr<Write>& write) = 0;
  };

  // REQUIRES: the references outlive it.
  WriteQueue(const Clock& clock, Outbox& outbox, WorkerSet& workers, StepQueue& steps, Host& host)
      : clock_(clock), outbox_(outbox), workers_(workers), steps_(steps), host_(host) {}

  // ---- writes ----

  // `done` is called when all servers have applied it.
  void Add(CommitPlan plan, StatusCallback done);
  // Applies the write of the redo log again. Whoever still waits for it is answered.
  void Replay(EntryId id, const CommitPlan& plan);
  // Begins the writes that may begin, and holds the workers for those that have to wait.
  void Start();
  // Begins the writes that let steps go first. To be called when those steps have been dispatched.
  void StartBehindSteps();
  // Whether a step that is not open yet has to wait for the writes that began while none was. If
  // so, this notes that a step waits: writes that have not begun let it go first.
  bool MakesStepsWait();

  // ---- events ----

  // What to ask this ps, but for the fence. Nullopt: nothing any more.
  std::optional<CommitRequest> RequestFor(int ps, const Write& write) const;
  bool IsOpen(EntryId id) const { return open_.count(id) > 0; }
  // The ps has applied it. True: all have, and the write is not open any more. Answer tells who
  // waits.
  bool OnCommitted(int ps, Write& write);
  void Answer(Write& write);
  // A worker that joins while the others are held is held too.
  void HoldIfOthersAre(Worker& joining);
  // Whether this is the hold that workers are told of by `number`.
  bool IsHold(uint64_t number) const { return hold_ && hold_->number == number; }
  // The worker begins no commit. When all of them have said so, writes may begin.
  void OnHeld(int worker);
  // Ends the hold if all its writes are applied. True: it has ended, and what waited for it may go
  // on.
  bool MaybeEndHold();
  // Releases the workers if not all of them have answered.
  void GiveUpHold();
  // The workers' sessions are over.
  void DropHold() { hold_.reset(); }
  void CheckHold(absl::Duration now);
  // The job has failed: moves the completions that wait to `calls`, those of open writes first, and
  // forgets all writes.
  void FailAll(const absl::Status& error, std::vector<Task>& calls);

  // ---- state ----

  // Those that have an id and are not applied by all servers yet.
  const OpenWrites& open() const { return open_; }
  bool has_waiting() const { return !waiting_.empty(); }
  bool is_holding() const { return hold_.has_value(); }
  struct HoldWait {
    int worker = 0;
    absl::Duration since;
  };
  // The first worker that a hold waits for.
  std::optional<HoldWait> WaitsFor() const;
  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const;

 private:
  struct Hold {
    uint64_t number = 0;
    absl::Duration since;
    // workers that have not answered yet
    std::set<int> waiting;
    // All have: writes are applied now.
    bool held = false;
    // So many more: those that come meanwhile wait for the next hold, or no step would ever commit.
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
  std::deque<std::shared_ptr<Write>> waiting_;  // for an id
  std::optional<Hold> hold_;
  // steps waited for writes that began while no step was open; the next writes let them go first
  bool steps_first_ = false;
  // That have been begun.
  uint64_t holds_ = 0;
  absl::Duration given_up_ = -absl::InfiniteDuration();
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_WRITE_QUEUE_H_
