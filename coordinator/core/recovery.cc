#include "coordinator/core/recovery.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/log.h"
#include "protocol/error.h"

namespace divvy {
namespace {

constexpr absl::Duration kRecoveriesWithin = absl::Minutes(10);

}  // namespace

// ---- the redo log ----

void Recovery::GiveUpFullLog() {
  if (!log_.full() || options_.checkpoints != nullptr || rewind_) return;
  outbox_.Add([gone = log_.GiveUp(), bytes = options_.redo_log_bytes] {
    DIVVY_LOG(WARNING) << "the redo log is full (--redo_log_bytes=" << bytes
                       << "), and without --checkpoint_dir nothing can make room in it: from here "
                          "on a lost parameter server ends the job";
  });
}

absl::Status Recovery::CheckLog(absl::Duration now, bool waits) {
  if (!log_.full() || !waits) {
    full_since_.reset();
    return absl::OkStatus();
  }
  if (!full_since_) full_since_ = now;
  if (now - *full_since_ <= options_.checkpoint_stall_timeout) return absl::OkStatus();
  return MakeError(Reason::kDisk, absl::StrCat("the redo log has been full for ",
                                               absl::FormatDuration(now - *full_since_), " (",
                                               log_.size(), " entries, ", log_.bytes(),
                                               " bytes; --redo_log_bytes), and no checkpoint could "
                                               "be made meanwhile: see the coordinator's log"));
}

// ---- rewind ----

absl::Status Recovery::CountRewind(absl::string_view why) {
  const absl::Duration now = clock_.Elapsed();
  while (!rewinds_.empty() && now - rewinds_.front() > kRecoveriesWithin) rewinds_.pop_front();
  rewinds_.push_back(now);
  ++num_rewinds_;
  if (static_cast<int64_t>(rewinds_.size()) <= options_.max_recoveries) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(
      "the job had to go back to its last checkpoint ", rewinds_.size(),
      " times within 10 minutes, more than --max_recoveries (", options_.max_recoveries,
      ") allows; the last time because ", why,
      ". The logs of the parameter servers say why they end: look for a memory limit first"));
}

void Recovery::Begin(std::string why, std::optional<JobPhase::Ending> ending) {
  Rewind rewind{std::move(why), clock_.Elapsed(), std::move(ending)};
  if (rewind_) {
    rewind.since = rewind_->since;
    if (!rewind.ending) rewind.ending = std::move(rewind_->ending);
  }
  rewind_ = std::move(rewind);
  again_.clear(), deferred_.clear();
  write_ = EntryId();
}

// Determines the order of the replay and the iterators that it needs. If steps of a pass that has
// ended are replayed, the workers open its data once more. A write that was under way has no
// number, because the program has not seen it finished.
void Recovery::Prepare() {
  std::vector<uint64_t> numbers;
  for (const RedoLog::Entry* entry = log_.Next(EntryId()); entry != nullptr;
       entry = log_.Next(EntryId(entry->id.value() + 1))) {
    if (entry->finished > 0) numbers.push_back(entry->finished);
    if (entry->step == nullptr) continue;
    for (const auto& make : entry->step->iterators) {
      if (!passes_.Has(make->iterator)) rewind_->iterators.emplace(make->iterator, make);
    }
  }
  order_ = ReplayOrder(std::move(numbers));
  const RedoLog::Entry* const first = log_.Next(EntryId());
  next_ = first != nullptr ? first->id : ids_.next();
  rewind_->steps = rewind_->steps_left = log_.finished_steps();
  ids_.Rewind(next_);
}

int64_t Recovery::NumMissing() const {
  if (!rewind_) return 0;
  // Steps that are being replayed are counted as finished and are open.
  const auto is_replayed = [](const auto& open) { return open.second->replayed; };
  return rewind_->steps_left +
         std::count_if(steps_.open().begin(), steps_.open().end(), is_replayed);
}

// ---- replay ----

bool Recovery::Replay() {
  while (rewind_ && ReplayOne()) {
  }
  if (!rewind_ || steps_.in_flight() > 0 || write_ != EntryId()) return false;
  return again_.empty() && deferred_.empty() && log_.Next(next_) == nullptr;
}

// Begins the next entry. False: it has to wait.
bool Recovery::ReplayOne() {
  if (!again_.empty()) {
    if (!ReplayStep(again_.front())) return false;
    again_.pop_front();
    return true;
  }
  if (write_ != EntryId()) return false;
  const auto ready = std::find_if(deferred_.begin(), deferred_.end(), [this](const auto& step) {
    return order_.MayBegin(step->begun);
  });
  if (ready != deferred_.end()) {
    if (!ReplayStep(*ready)) return false;
    deferred_.erase(ready);
    return true;
  }
  const RedoLog::Entry* const entry = log_.Next(next_);
  if (entry == nullptr || ids_.IsTooFarAhead(entry->id)) return false;
  const bool may_begin = order_.MayBegin(entry->begun) || !RuleHolds(Rule::kReplayKeepsOrder);
  if (steps_.in_flight() > 0 && (!may_begin || entry->write != nullptr)) return false;
  return ReplayEntry(*entry, may_begin);
}

bool Recovery::ReplayEntry(const RedoLog::Entry& entry, bool may_begin) {
  const EntryId id = entry.id;
  // If the program still waits for this write, it gets its answer now.
  if (entry.write != nullptr) {
    write_ = id;
    writes_.Replay(id, entry.write->parts, entry.write->tick);
    Advance(id);
    return false;
  }
  const std::shared_ptr<Step> step = StepAgain(entry);
  // Nothing is in flight, and yet the step has to wait for entries with higher ids. In the first
  // run a retry of the step began after these entries had finished.
  if (!may_begin) {
    deferred_.push_back(step);
  } else if (!ReplayStep(step)) {
    return false;
  }
  steps_.BeginReplayed(step);
  --rewind_->steps_left;
  Advance(id);
  return true;
}

std::shared_ptr<Recovery::Step> Recovery::StepAgain(const RedoLog::Entry& entry) const {
  auto step = std::make_shared<Step>();
  step->request = {entry.step->function, entry.step->args, /*read_only=*/false};
  step->id = entry.id;
  step->ordinal = entry.step->ordinal;
  step->leases = entry.step->inputs;
  step->learning_rate_scale = entry.step->learning_rate_scale;
  step->tick = entry.step->tick;
  step->replayed = true;
  step->queued_at = step->waits_since = clock_.Elapsed();
  step->begun = entry.begun;
  step->finished = entry.finished;
  step->first_worker = entry.step->worker;
  for (const auto& make : entry.step->iterators) step->iterators.push_back(make->iterator);
  return step;
}

void Recovery::Advance(EntryId begun) {
  const RedoLog::Entry* const next = log_.Next(EntryId(begun.value() + 1));
  next_ = next != nullptr ? next->id : ids_.next();
  host_.OnReplayAdvanced();
}

// Prefers the worker that ran the step the first time, if it is present. That worker reads its data
// forward, and each jump would cost it the data that it has prefetched. It also runs one step after
// another. While the worker joins, the step waits for it. If another worker takes its place, that
// worker runs all steps of the absent one, in the same order.
Recovery::Worker* Recovery::PickReplayer(const Step& step) {
  const auto first = workers_.all().find(step.first_worker);
  if (first != workers_.all().end() && first->second.state == Worker::State::kJoining)
    return nullptr;
  const bool is_there = first != workers_.all().end() &&
                        first->second.state == Worker::State::kReady && !first->second.leaving &&
                        !steps_.Rests(first->second);
  Worker* const chosen = !is_there                             ? steps_.PickWorker(step)
                         : steps_.HasRoom(first->second, step) ? &first->second
                                                               : nullptr;
  const auto runs_elsewhere = [&](const auto& open) {
    const Step& other = *open.second;
    return other.replayed && other.first_worker == step.first_worker &&
           other.state != Step::State::kQueued && other.worker != chosen->index;
  };
  if (chosen == nullptr || std::any_of(steps_.open().begin(), steps_.open().end(), runs_elsewhere))
    return nullptr;
  return chosen;
}

// False: no worker has room for the step. Or its data has ended on all present workers, and a
// worker that may still join has the rest.
bool Recovery::ReplayStep(const std::shared_ptr<Step>& step) {
  const bool one_may_come =
      std::any_of(workers_.all().begin(), workers_.all().end(), [](const auto& entry) {
        return entry.second.state == Worker::State::kDialing && !entry.second.leaving;
      });
  if (one_may_come && passes_.HasNoDataLeft(*step)) return false;
  Worker* const worker = PickReplayer(*step);
  if (worker != nullptr) steps_.Send(step, *worker);
  return worker != nullptr;
}

void Recovery::Settle(const std::shared_ptr<Step>& step, StepVerdict verdict,
                      const absl::Status& error) {
  if (verdict == StepVerdict::kRequeue) {
    step->state = Step::State::kQueued;
    step->worker = -1;
    again_.push_front(step);
    return;
  }
  num_replayed_ += verdict == StepVerdict::kFinish;
  steps_.EndReplayed(*step);
  order_.Finish(step->finished);
  if (verdict != StepVerdict::kFinish) host_.OnReplayFailed(*step, error);
}

// Outside of a rewind, no open step has begun to commit when a write is applied. So all open steps
// come after the write.
void Recovery::OnWritten(EntryId id) {
  const uint64_t number = log_.FinishWrite(id);
  if (!rewind_) return steps_.OnWritten();
  if (write_ == id) write_ = EntryId();
  order_.Finish(number);
}

std::map<std::string, int64_t> Recovery::Sizes() const {
  return {{"redo log", log_.size()}, {"rewinds", static_cast<int64_t>(rewinds_.size())}};
}

}  // namespace divvy
