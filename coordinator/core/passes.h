// The passes over data of a job: which iterators there are, how far each has been read, what each
// worker says of its data, and which numbered steps have finished.
//
// Where a pass over leased data stands is part of every cut. A job that goes on from the cut reads
// each element of the pass once.
#ifndef DIVVY_COORDINATOR_CORE_PASSES_H_
#define DIVVY_COORDINATOR_CORE_PASSES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/outbox.h"
#include "cluster/job_state.h"
#include "cluster/messages.h"
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/data_agreement.h"
#include "coordinator/core/lease_book.h"
#include "coordinator/core/limited_log.h"
#include "coordinator/core/number_set.h"
#include "coordinator/core/worker_set.h"

namespace divvy {

// Calls the WorkerSet (to send, and to ask who is here) and nobody else. Not thread-safe: the
// coordinator's lock guards it.
class Passes {
 public:
  using Worker = coordinator_records::Worker;
  using Step = coordinator_records::Step;

  // REQUIRES: the references outlive it.
  Passes(const CoordinatorOptions& options, WorkerSet& workers, const Clock& clock, Outbox& outbox)
      : options_(options), workers_(workers), said_(clock, outbox) {}

  // Gives ids of this epoch from here on. No two epochs give the same id.
  void BeginEpoch(Epoch epoch) { next_resource_ = (epoch.value() << 32) + 1; }

  // ---- iterators ----

  // Makes an iterator for the program. Resumes the pass over the same data that the state of the
  // job holds unfinished, if there is one and `leased`.
  ResourceId Make(std::string source, Nest args, bool leased);
  // The iterator goes when no step uses it and no rewind is under way.
  void Drop(ResourceId id);
  // Steps that are queued or open use their iterators. `change`: +1 or -1.
  void Use(const Step& step, int64_t change);
  bool Has(ResourceId id) const { return iterators_.count(id) > 0; }
  // Between these two, dropped iterators stay: steps that are run again may name them.
  void BeginRewind() { rewinding_ = true; }
  void EndRewind();
  // The job has failed. No completion waits here.
  void FailAll() { rewinding_ = false; }

  // ---- loops of the program ----

  // The iterator of a loop: that of the paused loop over the same data, or a new one. A paused loop
  // over other data is over.
  ResourceId BeginLoop(const RunRequest& loop);
  // The pass `over` has ended; the loop begins the next one.
  ResourceId NextPass(const RunRequest& loop, ResourceId over);
  // The loop has ended. Its pass is paused if the loop runs up to a last step, else dropped.
  void EndLoop(const RunRequest& loop, ResourceId id);
  // The loop has failed, and the program is told.
  void FailLoop(ResourceId id);
  // A step of the loop has finished.
  void CountFinished(ResourceId id);
  int64_t FinishedIn(ResourceId id) const;

  // ---- dispatch ----

  // Whether the worker may be given a step that reads by this iterator. Its answer on opening the
  // data comes first. A worker whose data has ended is left out as long as another one has data
  // left; after that the step finds the end itself, for it may have something to do there.
  bool MayRead(const Worker& worker, ResourceId id) const;
  // Whether no element is left for any worker that is here.
  bool IsExhausted(ResourceId id) const;
  // Whether all workers have reached the end of one of the step's iterators.
  bool HasNoDataLeft(const Step& step) const;
  // A training step is about to read for the first time: passes that it begins are counted in
  // changes().
  void NoteTraining(const Step& step);
  // Gives the step positions of each leased iterator among its arguments. At the end of the data a
  // step that the program has scheduled gets none, and runs all the same. False: a loop needs no
  // such step.
  bool TakeLeases(Step& step, const Worker& worker);
  // The step has not counted for these positions: others read them.
  void ReturnLeases(const Step& step);
  // Takes note of iterators that had nothing for the step. Where the function names none and says
  // that the step's data has ended, all of them have. True: the data ends early at this worker
  // alone.
  bool NoteEnds(const Worker& worker, Step& step, const Report& report);

  // ---- numbered steps ----

  // As CoordinatorCore::Schedule says of `once`. OK also for a step without a number.
  absl::Status ClaimNumber(const StepRequest& request);
  void SettleNumber(const Step& step, bool finished);

  // ---- workers ----

  // A worker has a new session, and has opened nothing in it.
  void ForgetReadings(int worker) { readings_.erase(worker); }
  // Tells a worker that joins of all iterators. Data that nobody has read yet is cut anew, so that
  // the worker has a share of it.
  void IntroduceTo(Worker& joining);
  // What the worker had not begun of its leases is for the others.
  void WorkerGone(int worker);
  // The worker has opened the data, or could not. An error: the workers' data differs and nobody
  // can tell whose is wrong; the program is told.
  absl::Status NoteOpened(const Worker& worker, const ResourceReady& ready);

  // ---- the state of the job ----

  // All training passes, with those that have ended as long as the store may name them: a
  // coordinator that adopts the servers' state then knows that all of it was read. `open`: leases
  // of all open steps. They are not in a cut, so another life of the coordinator gives them to
  // others.
  std::vector<PassProgress> ProgressNow(const std::vector<InputLease>& open) const;
  // The passes that are not over, with the data that each is of.
  std::vector<DataPass> PassesNow(const std::vector<InputLease>& open) const;
  // Goes on from a state: `begun` counts the passes of each source, `passes` had not ended.
  void TakeUp(const std::map<std::string, int64_t>& begun, const std::vector<DataPass>& passes);
  // How many passes of each source have begun.
  const std::map<std::string, int64_t>& begun() const { return begun_; }
  // How often a training pass over leased data has begun, been taken up or dropped.
  int64_t changes() const { return changes_; }
  // The store has the state of when changes() was `changes`.
  void NoteStored(int64_t changes);
  // The descriptions of the step's iterators, as the redo log keeps them: one object for each
  // iterator.
  // Adds to `new_bytes` the size of those that the log has not had before.
  std::vector<std::shared_ptr<const MakeResource>> Logged(const Step& step, int64_t& new_bytes);

  // The elements of the pass, as far as anybody can tell.
  std::optional<int64_t> ExpectedElements(ResourceId id) const;
  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const;

 private:
  // How a worker stands to an iterator, in its session.
  struct Reading {
    // It has said whether it could open the data.
    bool opened = false;
    // The data is its own, and has ended.
    bool ended = false;
    // It reads none: it came too late, could not open the data, or its data is not that of the
    // others.
    bool excluded = false;
  };

  struct Iterator {
    MakeResource make;
    // `make`, once a step of the redo log names it
    std::shared_ptr<const MakeResource> logged = {};
    // leased ones
    LeaseBook book;
    // leased ones: whether all workers read the same
    DataAgreement agreement = {};
    // Of the data, as most workers have it.
    std::optional<int64_t> elements = {};
    // The workers whose data is another.
    std::set<int> left_out = {};
    // worker -> where its data ended, before that of most workers does
    std::map<int, int64_t> early_ends = {};
    // To the program, where nobody is in the majority.
    bool difference_told = false;
    // steps that are queued or open and name it
    int64_t users = 0;
    // steps of the loop that reads by it
    int64_t finished = 0;
    // Of a loop that runs, or has failed and the program has not been told.
    bool in_loop = false;
    // goes when the last of its users is closed
    bool dropped = false;
    // Not of a loop.
    bool of_program = false;
    // A training step has read of it: where it stands is in every cut.
    bool trains = false;
    // A step has been given it.
    bool is_read = false;

    // A dropped one may still be here, for steps that are run again.
    bool is_training() const { return trains && (!dropped || users > 0); }
  };

  // Numbered steps of the program. What has finished travels as the positions of a pass do, so it
  // is in every cut, and in what a coordinator adopts.
  struct Series {
    ResourceId id;
    NumberSet finished;
    std::set<int64_t> scheduled;  // queued, or in flight
  };

  // Of data whose last pass was read to its end.
  struct KnownSize {
    std::string source;
    Nest args;
    int64_t elements = 0;
  };

  Iterator* Find(ResourceId id);
  const Iterator* Find(ResourceId id) const;
  Reading ReadingOf(int worker, ResourceId id) const;
  Reading& ReadingAt(int worker, ResourceId id) { return readings_[worker][id]; }
  ResourceId MakeWith(std::string source, Nest args, bool leased,
                      const std::optional<DataPass>& unfinished);
  ResourceId BeginPass(const RunRequest& loop);
  std::optional<ResourceId> TakePaused(const RunRequest& loop);
  void BeginIn(Iterator& iterator, const std::optional<DataPass>& unfinished);
  std::optional<DataPass> TakeUnfinished(const std::string& source, const Nest& args, bool leased);
  void TakeUpUnfinished(const std::vector<DataPass>& passes);
  KnownSize* FindKnownSize(const MakeResource& make);  // null: none
  void RememberSize(const Iterator& iterator);
  void WarnOfUnreadParts(const MakeResource& make);

  bool EndedEverywhere(ResourceId id) const;
  bool NobodyElseReads(ResourceId id) const;
  bool MostHaveOpened(ResourceId id) const;
  bool NoteEnd(int worker, Iterator& iterator, InputLease& lease, const Report& report);
  bool NoteEarlyEnd(int worker, Iterator& iterator, int64_t position);
  void NoteElements(Iterator& iterator, int64_t elements);
  void NoteUnopened(int worker, const Iterator& iterator, const absl::Status& error);
  absl::Status LeaveOutOdd(Iterator& iterator);
  void LeaveOut(int worker, Iterator& iterator);
  void TakeBackIn(int worker, Iterator& iterator);

  static PassProgress ProgressOf(ResourceId id, const Iterator& iterator,
                                 const std::vector<InputLease>& open);
  static PassProgress ProgressOf(const Series& series);

  const CoordinatorOptions& options_;
  WorkerSet& workers_;
  // A worker may say the same, or something new, as often as it likes.
  LimitedLog said_;

  std::map<ResourceId, Iterator> iterators_;
  std::map<int, std::map<ResourceId, Reading>> readings_;  // by worker
  uint64_t next_resource_ = 1;
  // Of a loop that reached its last step; one is kept, for each holds an iterator on every worker.
  std::optional<ResourceId> paused_;
  // passes, by source
  std::map<std::string, int64_t> begun_;
  // That came with the state, and nobody has gone on with.
  std::vector<DataPass> unfinished_;
  std::vector<KnownSize> known_sizes_;
  std::map<std::string, Series> series_;
  // Training passes whose iterator is gone, as long as the store may name them, each with changes_
  // of then.
  std::deque<std::pair<int64_t, PassProgress>> ended_;
  int64_t changes_ = 0;
  bool rewinding_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_PASSES_H_
