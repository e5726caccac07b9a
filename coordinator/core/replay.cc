// Back to the last cut and forward again: what becomes of a job that has lost a parameter server, or whose state holds half a step that no run can complete.
//
//   1. the next epoch: sessions and what they were doing are dropped, so is a checkpoint under way. Nothing of the old epoch is applied any more
//   2. ATTACHING   all servers answer in the new epoch
//   3. LOADING     all of them load the base: the newest committed checkpoint, or nothing. What was made since is made again
//   4. REPLAYING   the redo log is run: an entry begins when all that had finished before it began have finished again (replay_order.h), so the program finds
//                  what it saw; each write runs alone. What the program saw finished is not told again
//   5. RUNNING     steps that had not finished go first; what waited (reads, writes, Join) goes on
//
// All servers go back, not only the lost one: so there is one cut and one way to recover, and nothing is assumed of step functions but that they depend on
// their args, inputs, variables and seed() alone.
//
// A loss from 4 on begins at 1 again. In 2 and 3 nothing stands on a server yet: its successor takes its place. Each loss counts for --max_recoveries.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/log.h"
#include "coordinator/core/coordinator_core.h"
#include "coordinator/core/refusals.h"

namespace divvy {
namespace {

constexpr absl::Duration kRecoveriesWithin = absl::Minutes(10);

}  // namespace

// ---- back ----

void CoordinatorCore::Rewind(std::string why) {
  if (phase_.IsFinal()) return;
  if (IsDraining()) return FailJob(Drained());  // what was in flight cannot be finished in time
  if (const absl::Status may = MayRewind(why); !may.ok()) return FailJob(may);
  GoBack(std::move(why));
  outbox_.Add([text = absl::StrCat(recovery_->why, ". All parameter servers go back to ",
                                   checkpoint_maker_.newest() ? checkpoint_maker_.newest()->name() : "the beginning", ", and ", recovery_->steps_left,
                                   " steps are run again")] { DIVVY_LOG(WARNING) << text; });
}

void CoordinatorCore::GoBack(std::string why) {
  Recovery recovery;
  recovery.why = std::move(why);
  recovery.since = recovery_ ? recovery_->since : clock_.Elapsed();
  if (recovery_) recovery.ending = std::move(recovery_->ending);
  if (auto* const ending = phase_.Get<JobPhase::Ending>()) recovery.ending = std::move(*ending);
  recovery_ = std::move(recovery);
  passes_.BeginReplay();
  phase_.Enter(JobPhase::Attaching());
  checkpoint_maker_.Drop();
  layout_changes_.Rewind();
  writes_.DropHold();
  adoption_.is_told = false;
  DropSessions();
  steps_.Rewind();
  PrepareReplay();
  ForgetCoveredHistory();
  const RedoLog::Entry* const first = log_.Next(EntryId());
  recovery_->next = first != nullptr ? first->id : ids_.next();
  recovery_->steps_left = log_.finished_steps();
  ids_.Rewind(recovery_->next);
  RestartEpoch(row_.epoch);
}

absl::Status CoordinatorCore::MayRewind(absl::string_view why) {
  const absl::Duration now = clock_.Elapsed();
  while (!rewinds_.empty() && now - rewinds_.front() > kRecoveriesWithin) rewinds_.pop_front();
  rewinds_.push_back(now);
  ++recoveries_;
  if (static_cast<int64_t>(rewinds_.size()) <= options_.max_recoveries) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the job had to go back to its last checkpoint ", rewinds_.size(),
                                          " times within 10 minutes, more than --max_recoveries (", options_.max_recoveries, ") allows; the last time because ",
                                          why, ". The logs of the parameter servers say why they end: look for a memory limit first"));
}

// Each worker is given another session in the new epoch; what it was doing in this one can no longer be applied.
void CoordinatorCore::DropSessions() {
  workers_.DropFences();
  for (auto& [index, worker] : workers_.all()) {
    workers_.EndSession(worker);
    worker.last_heard = clock_.Elapsed();
    worker.attaching = false;
    ++worker.tries;  // an answer of the former epoch is void
    passes_.WorkerGone(index);
  }
}

// In which order, and over which data: passes may be over whose steps are run again, and their data is opened once more. Writes that were under way have no
// number yet, for nobody has seen them finished.
void CoordinatorCore::PrepareReplay() {
  std::vector<uint64_t> numbers;
  for (const RedoLog::Entry* entry = log_.Next(EntryId()); entry != nullptr; entry = log_.Next(EntryId(entry->id.value() + 1))) {
    if (entry->finished > 0) numbers.push_back(entry->finished);
    if (entry->step == nullptr) continue;
    for (const auto& make : entry->step->iterators) {
      if (!passes_.Has(make->iterator)) recovery_->iterators.emplace(make->iterator, make);
    }
  }
  recovery_->order = ReplayOrder(std::move(numbers));
}

// Servers that load the base do not know by whom its values were made.
void CoordinatorCore::ForgetCoveredHistory() {
  for (auto finished = history_.finished.begin(); finished != history_.finished.end();) {
    const RedoLog::Entry* const entry = log_.Next(finished->first);
    finished = entry != nullptr && entry->id == finished->first ? std::next(finished) : history_.finished.erase(finished);
  }
}

// The base cannot be read any more, and an older checkpoint is of no use: what was done between the two is in no log.
void CoordinatorCore::FailBase(const absl::Status& error) {
  const absl::Status lost = MakeError(Reason::kPsLost, "");
  absl::Status told = absl::DataLossError(absl::StrCat(error.message(), ". The job cannot go on from ", checkpoint_maker_.newest()->name(),
                                                       " after it lost a parameter server (", recovery_->why,
                                                       "). Start the program again: it goes on from an older checkpoint, if it calls RestoreLatest"));
  lost.ForEachPayload([&told](absl::string_view type, const absl::Cord& payload) { told.SetPayload(type, payload); });
  FailJob(std::move(told));
}

// ---- and forward ----

void CoordinatorCore::BeginReplay() {
  phase_.Enter(JobPhase::Replaying());
  WantSync();
  for (auto& [index, worker] : workers_.all()) {
    if (!worker.leaving) AttachWorker(worker);
  }
  layout_changes_.StartNext();
  if (!RuleHolds(Rule::kReadsWaitForReplay)) SendReads();
  PumpReplay();
}

void CoordinatorCore::PumpReplay() {
  while (phase_.Is(Phase::kReplaying) && ReplayOne()) {
  }
  if (!phase_.Is(Phase::kReplaying) || steps_.in_flight() > 0 || recovery_->write != EntryId()) return;
  if (!recovery_->again.empty() || !recovery_->deferred.empty()) return;
  if (log_.Next(recovery_->next) == nullptr) FinishReplay();
}

// Begins the next entry. False: something has to happen first.
bool CoordinatorCore::ReplayOne() {
  Recovery& recovery = *recovery_;
  if (!recovery.again.empty()) {
    if (!ReplayStep(recovery.again.front())) return false;
    recovery.again.pop_front();
    return true;
  }
  if (recovery.write != EntryId()) return false;
  const auto ready = std::find_if(recovery.deferred.begin(), recovery.deferred.end(), [&](const auto& step) { return recovery.order.MayBegin(step->begun); });
  if (ready != recovery.deferred.end()) {
    if (!ReplayStep(*ready)) return false;
    recovery.deferred.erase(ready);
    return true;
  }
  const RedoLog::Entry* const entry = log_.Next(recovery.next);
  if (entry == nullptr || ids_.IsTooFarAhead(entry->id)) return false;
  const bool may_begin = recovery.order.MayBegin(entry->begun) || !RuleHolds(Rule::kReplayKeepsOrder);
  if (steps_.in_flight() > 0 && (!may_begin || entry->write != nullptr)) return false;
  if (entry->write != nullptr) {
    ReplayWrite(*entry);
    AdvanceReplay(entry->id);
    return false;
  }
  const std::shared_ptr<Step> step = StepAgain(*entry);
  if (!may_begin) {  // nothing is in flight, so it was run again itself, after entries that had been dispatched later
    recovery.deferred.push_back(step);
  } else if (!ReplayStep(step)) {
    return false;
  }
  steps_.BeginReplayed(step);
  --recovery.steps_left;
  AdvanceReplay(step->id);
  return true;
}

std::shared_ptr<CoordinatorCore::Step> CoordinatorCore::StepAgain(const RedoLog::Entry& entry) const {
  auto step = std::make_shared<Step>();
  step->request = {entry.step->function, entry.step->args, /*read_only=*/false};
  step->id = entry.id;
  step->ordinal = entry.step->ordinal;
  step->leases = entry.step->inputs;
  step->learning_rate_scale = entry.step->learning_rate_scale;
  step->replayed = true;
  step->begun = entry.begun;
  step->finished = entry.finished;
  step->first_worker = entry.step->worker;
  for (const auto& make : entry.step->iterators) step->iterators.push_back(make->iterator);
  return step;
}

// The entry has been begun.
void CoordinatorCore::AdvanceReplay(EntryId begun) {
  const RedoLog::Entry* const next = log_.Next(EntryId(begun.value() + 1));
  recovery_->next = next != nullptr ? next->id : ids_.next();
  if (ids_.NeedsSync(recovery_->next)) WantSync();
}

// The worker that ran the step, as long as it is there: it reads its data forward, where each jump would cost it what it has read ahead, and it runs one step
// after another. It is waited for while it joins. Where others stand in for it they keep that order, too.
CoordinatorCore::Worker* CoordinatorCore::PickReplayer(const Step& step) {
  const auto first = workers_.all().find(step.first_worker);
  if (first != workers_.all().end() && first->second.state == Worker::State::kJoining) return nullptr;
  const bool is_there = first != workers_.all().end() && first->second.state == Worker::State::kReady && !first->second.leaving;
  Worker* const chosen = !is_there ? steps_.PickWorker(step) : steps_.HasRoom(first->second) ? &first->second : nullptr;
  const auto runs_elsewhere = [&](const auto& open) {
    const Step& other = *open.second;
    return other.replayed && other.first_worker == step.first_worker && other.state != Step::State::kQueued && other.worker != chosen->index;
  };
  if (chosen == nullptr || std::any_of(steps_.open().begin(), steps_.open().end(), runs_elsewhere)) return nullptr;
  return chosen;
}

bool CoordinatorCore::ReplayStep(const std::shared_ptr<Step>& step) {
  const bool one_may_come = std::any_of(workers_.all().begin(), workers_.all().end(),
                                        [](const auto& entry) { return entry.second.state == Worker::State::kDialing && !entry.second.leaving; });
  if (one_may_come && passes_.HasNoDataLeft(*step)) return false;
  Worker* const worker = PickReplayer(*step);
  if (worker != nullptr) steps_.Send(step, *worker);
  return worker != nullptr;
}

// One that the program still waits for is answered at last; the others have been.
void CoordinatorCore::ReplayWrite(const RedoLog::Entry& entry) {
  recovery_->write = entry.id;
  writes_.Replay(entry.id, entry.write->parts);
}

void CoordinatorCore::SettleReplayed(const std::shared_ptr<Step>& step, StepVerdict verdict, const absl::Status& error) {
  if (verdict == StepVerdict::kRequeue) {
    step->state = Step::State::kQueued;
    step->worker = -1;
    recovery_->again.push_front(step);
    return;
  }
  steps_.EndReplayed(*step);
  recovery_->order.Finish(step->finished);
  if (verdict != StepVerdict::kFinish) FailReplay(*step, error);
}

// The checkpoint is good all the same: another start needs no replay.
void CoordinatorCore::FailReplay(const Step& step, const absl::Status& error) {
  FailJob(MakeError(Reason::kPsLost, absl::StrCat("step ", step.request.function, " (", step.id.value(),
                                                  ") had finished, and could not be run again after a parameter server was ", "lost: ", error.message(),
                                                  ". A step must depend on its args, inputs, variables and seed() alone, and data that is not leased ",
                                                  "may end early; --durability=checkpoint runs nothing again", RemedyOfLoss())));
}

void CoordinatorCore::FinishReplay() {
  Recovery recovery = *std::exchange(recovery_, std::nullopt);
  phase_.Enter(JobPhase::Running());
  row_.lineage = history_.lineage = row_.epoch;
  PutThen(WholeState(), [mark = MarkNow()](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) { core.NoteStored(mark); });
  outbox_.Add([text = absl::StrCat("all that had finished is there again, ", absl::FormatDuration(clock_.Elapsed() - recovery.since), " later")] {
    DIVVY_LOG(INFO) << text;
  });
  workers_.SendToAll(LayoutUpdate{layout_plan_.layout()});  // of the version that they have: which means, forget all that you have read, for not all was there
  for (const auto& [id, make] : recovery.iterators) workers_.SendToAll(DropResource{id});
  GiveUpFullLog();  // variables that were created meanwhile may have filled it
  passes_.EndReplay();
  steps_.Resume();
  WantSync();
  LetWaitersGo();
  if (recovery.ending) {
    phase_.Enter(*std::move(recovery.ending));
    phase_.Get<JobPhase::Ending>()->seq = WantSync();
  }
  Pump();
}

// ---- the log ----

// Where no checkpoint can ever make room. A log that is being run is needed to its end.
void CoordinatorCore::GiveUpFullLog() {
  if (!log_.full() || options_.checkpoints != nullptr || recovery_) return;
  outbox_.Add([gone = log_.GiveUp(), bytes = options_.redo_log_bytes] {
    DIVVY_LOG(WARNING) << "the redo log is full (--redo_log_bytes=" << bytes
                       << "), and without --checkpoint_dir nothing can make room in it: from here on a lost parameter server ends the job";
  });
}

void CoordinatorCore::CheckLog(absl::Duration now) {
  const bool one_is_made = checkpoint_maker_.after_release();
  if (!log_.full() || !phase_.Is(Phase::kRunning) || one_is_made) return log_full_since_.reset();
  if (!log_full_since_) log_full_since_ = now;
  if (now - *log_full_since_ <= options_.checkpoint_stall_timeout) return;
  FailJob(
      MakeError(Reason::kDisk, absl::StrCat("the redo log has been full for ", absl::FormatDuration(now - *log_full_since_), " (", log_.size(), " entries, ",
                                            log_.bytes(), " bytes; --redo_log_bytes), and no checkpoint could be made meanwhile: the log says why")));
}

// A checkpoint has been committed: it is the base, and the log what came after its cut.
void CoordinatorCore::MoveBase(const JobState& committed) {
  adoption_.unsaved = false;
  layout_plan_.LoadAll(*committed.layout);
  outbox_.Add([covered = log_.MoveBase(committed.cut, committed.layout->version())] {});  // freed without the lock
}

}  // namespace divvy
