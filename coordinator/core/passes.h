// The passes over the data of a job: which iterators exist, how far each has been read, what each
// worker has reported about its data, and which numbered steps have finished.
//
// The position of each pass over leased data is part of every cut. So a job that continues from the
// cut reads each element of the pass once.
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
#include "coordinator/core/coordinator_options.h"
#include "coordinator/core/coordinator_records.h"
#include "coordinator/core/data_agreement.h"
#include "coordinator/core/lease_book.h"
#include "coordinator/core/limited_log.h"
#include "coordinator/core/number_set.h"
#include "coordinator/core/worker_set.h"
#include "protocol/job_state.h"
#include "protocol/messages.h"

namespace divvy {

// Calls only WorkerSet, to send and to ask which workers are present. Never blocks. Not
// thread-safe: the coordinator's lock guards it.
class Passes {
 public:
  using Worker = coordinator_records::Worker;
  using Step = coordinator_records::Step;

  // REQUIRES: the references outlive it.
  Passes(const CoordinatorOptions& options, WorkerSet& workers, const Clock& clock, Outbox& outbox)
      : options_(options), workers_(workers), said_(clock, outbox) {}

  // From now on, new iterators get ids of this epoch. No two epochs give the same id.
  void BeginEpoch(Epoch epoch) { next_resource_ = (epoch.value() << 32) + 1; }

  // ---- iterators ----

  // Makes an iterator for the program. If `leased` and the job's state has an unfinished pass over
  // the same data, the iterator resumes that pass.
  ResourceId Make(std::string source, Nest args, bool leased);
  // The iterator is removed once no step uses it and no rewind is under way.
  void Drop(ResourceId id);
  // Counts a step that is queued or open as a user of its iterators. `change`: +1 or -1.
  void Use(const Step& step, int64_t change);
  bool Has(ResourceId id) const { return iterators_.count(id) > 0; }
  // Between BeginRewind and EndRewind dropped iterators stay, because steps that are run again may
  // name them.
  void BeginRewind() { rewinding_ = true; }
  void EndRewind();
  // The job has failed. No completion waits here.
  void FailAll() { rewinding_ = false; }

  // ---- loops of the program ----

  // The iterator for a loop: that of the paused loop over the same data, or a new one. A paused
  // loop over other data ends.
  ResourceId BeginLoop(const RunRequest& loop);
  // Pass `over` has ended. Returns the iterator of the loop's next pass.
  ResourceId NextPass(const RunRequest& loop, ResourceId over);
  // The loop has ended. If it ran up to a last step its pass is paused; otherwise it is dropped.
  void EndLoop(const RunRequest& loop, ResourceId id);
  // The loop has failed, and the program has the error.
  void FailLoop(ResourceId id);
  // A step of the loop has finished.
  void CountFinished(ResourceId id);
  // Steps of the loop that have finished in this pass.
  int64_t FinishedIn(ResourceId id) const;

  // ---- dispatch ----

  // Whether the worker may get a step that reads from this iterator. A worker gets no such step
  // before it has reported that it opened the data. A worker whose data has ended gets no such step
  // while another worker has data left. Once no worker has data left, it gets such steps again,
  // because the step function may have work to do at the end of the data.
  bool MayRead(const Worker& worker, ResourceId id) const;
  // Whether no element is left for any present worker.
  bool IsExhausted(ResourceId id) const;
  // Whether all workers have reached the end of one of the step's iterators.
  bool HasNoDataLeft(const Step& step) const;
  // A training step is about to read for the first time. Passes that it begins count in changes().
  void NoteTraining(const Step& step);
  // Gives the step positions of each leased iterator in its arguments. At the end of the data a
  // step that the program scheduled gets no positions and runs anyway. False: the step belongs to a
  // loop, which needs no step without positions.
  bool TakeLeases(Step& step, const Worker& worker);
  // The step has not used its positions. They are given to other steps.
  void ReturnLeases(const Step& step);
  // Records which iterators had no element for the step. If the function reports the end of its
  // data without naming an iterator, all of the step's iterators count. True: the data ends early
  // at this worker alone.
  bool NoteEnds(const Worker& worker, Step& step, const Report& report);

  // ---- numbered steps ----

  // Reserves the number of a numbered step. Errors: those of `once` in CoordinatorCore::Schedule.
  // OK also for a step without a number.
  absl::Status ClaimNumber(const StepRequest& request);
  // The numbered step is closed: with `finished` its number is used for good, otherwise it is free
  // again.
  void SettleNumber(const Step& step, bool finished);

  // ---- workers ----

  // The worker has a new session and has opened nothing in it.
  void ForgetReadings(int worker) { readings_.erase(worker); }
  // Sends all iterators to a worker that joins. Data that no worker has read yet is cut again, so
  // that the worker gets a share.
  void IntroduceTo(Worker& joining);
  // The worker is gone. The other workers get the positions of its chunks that no step has.
  void WorkerGone(int worker);
  // The worker reports whether it could open the data. An error: the workers' data differs and no
  // majority exists. The caller raises the error to the program.
  absl::Status NoteOpened(const Worker& worker, const ResourceReady& ready);

  // ---- the state of the job ----

  // The progress of all training passes. Includes passes that have ended, as long as the store may
  // name them: a coordinator that adopts the servers' state then knows that they were read to the
  // end. `open`: the leases of all open steps. A cut does not count their positions as read, so
  // another life of the coordinator gives these positions out again.
  std::vector<PassProgress> ProgressNow(const std::vector<InputLease>& open) const;
  // The passes that have not ended, each with its data source and arguments.
  std::vector<DataPass> PassesNow(const std::vector<InputLease>& open) const;
  // Resumes from a state. `begun`: the number of passes begun, by source. `passes`: the passes that
  // had not ended.
  void RestoreState(const std::map<std::string, int64_t>& begun,
                    const std::vector<DataPass>& passes);
  // How many passes of each source have begun.
  const std::map<std::string, int64_t>& begun() const { return begun_; }
  // How often a training pass over leased data has begun, has been resumed or was dropped.
  int64_t changes() const { return changes_; }
  // The store has the state of the moment when changes() was `changes`.
  void NoteStored(int64_t changes);
  // The descriptions of the step's iterators for the redo log, one shared object for each iterator.
  // Adds to `new_bytes` the size of descriptions that the log gets for the first time.
  std::vector<std::shared_ptr<const MakeResource>> Logged(const Step& step, int64_t& new_bytes);

  // The best estimate of the pass' number of elements.
  std::optional<int64_t> ExpectedElements(ResourceId id) const;
  // The size of each structure, for CoordinatorCore::Sizes.
  std::map<std::string, int64_t> Sizes() const;

 private:
  // The state of an iterator at a worker, in the worker's current session.
  struct Reading {
    // The worker has reported whether it could open the data.
    bool opened = false;
    // The worker's own data has ended.
    bool ended = false;
    // The worker reads none of it: it came too late, could not open the data, or has different
    // data.
    bool excluded = false;
  };

  // An iterator that the program or a loop has made.
  struct Iterator {
    MakeResource make;
    // A shared copy of `make`, once a step in the redo log names it.
    std::shared_ptr<const MakeResource> logged = {};
    // For leased data: the positions.
    LeaseBook book;
    // For leased data: whether all workers read the same.
    DataAgreement agreement = {};
    // The number of elements that most workers report.
    std::optional<int64_t> elements = {};
    // Workers with different data.
    std::set<int> left_out = {};
    // Worker -> the position where its data ended before that of most workers.
    std::map<int, int64_t> early_ends = {};
    // The program has got the error that the data differs and no majority exists.
    bool difference_told = false;
    // The number of steps that name the iterator and are queued or open.
    int64_t users = 0;
    // The number of finished steps of the loop that reads from the iterator.
    int64_t finished = 0;
    // A running loop reads from the iterator, or a failed loop whose error the program does not
    // have yet.
    bool in_loop = false;
    // The iterator is removed when the last step that names it is closed.
    bool dropped = false;
    // The program has made the iterator, and not a loop.
    bool of_program = false;
    // A training step has read from it, so its position is in every cut.
    bool trains = false;
    // A step that reads from the iterator has been dispatched.
    bool is_read = false;

    // A dropped iterator may still be here for steps that are run again.
    bool is_training() const { return trains && (!dropped || users > 0); }
  };

  // The numbered steps of one series. Finished numbers are stored like the positions of a pass, so
  // every cut has them, and so has the state that a coordinator adopts.
  struct Series {
    ResourceId id;
    NumberSet finished;
    // Queued or in flight.
    std::set<int64_t> scheduled;
  };

  // The size of data whose last pass was read to its end.
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
  // Null: the size is not known.
  KnownSize* FindKnownSize(const MakeResource& make);
  void RememberSize(const Iterator& iterator);
  void WarnOfUnreadParts(const MakeResource& make);

  bool EndedEverywhere(ResourceId id) const;
  bool IsSoleReader(ResourceId id) const;
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
  // Limits the log lines about workers' reports, because a worker may send any number of reports.
  LimitedLog said_;

  std::map<ResourceId, Iterator> iterators_;
  std::map<int, std::map<ResourceId, Reading>> readings_;  // by worker
  uint64_t next_resource_ = 1;
  // The iterator of a loop that has reached its last step. Only one is kept, because each holds an
  // iterator on every worker.
  std::optional<ResourceId> paused_;
  // Passes begun, by source.
  std::map<std::string, int64_t> begun_;
  // Passes that came with the restored state and that are not resumed yet.
  std::vector<DataPass> unfinished_;
  std::vector<KnownSize> known_sizes_;
  std::map<std::string, Series> series_;
  // Training passes whose iterator is gone, kept as long as the store may name them. The number is
  // the value of changes_ at the end of the pass.
  std::deque<std::pair<int64_t, PassProgress>> ended_;
  int64_t changes_ = 0;
  bool rewinding_ = false;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_PASSES_H_
