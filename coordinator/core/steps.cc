// The program's calls about steps, and what may continue after an event (step_queue.h has the steps
// themselves).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "coordinator/core/coordinator_core.h"

namespace divvy {

bool CoordinatorCore::EndsWithError(StatusCallback raise, std::function<void()> again) {
  if (absl::Status failed = phase_.error(); !failed.ok()) {
    outbox_.Add([raise = std::move(raise), failed = std::move(failed)] { raise(failed); });
    return true;
  }
  if (!steps_.EndsWithError(std::move(raise), std::move(again))) return false;
  return true;
}

absl::Status CoordinatorCore::CheckArgs(const Nest& args, absl::string_view what) const {
  RETURN_IF_ERROR(args.status());
  const int64_t bytes = args.size_bytes();
  if (bytes <= options_.max_args_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the arguments of ", what, " are ", bytes, " bytes, more than the limit of ",
                   options_.max_args_bytes,
                   ": keep large data in variables, or in files that a data source reads"));
}

void CoordinatorCore::Schedule(StepRequest request, ResultCallback<Nest> result,
                               StatusCallback accepted) {
  Event event(*this);
  if (abandoned_) return;
  const auto again = [self = shared_from_this(), request, result, accepted] {
    self->Schedule(request, result, accepted);
  };
  if (EndsWithError(accepted, again)) return;
  if (const absl::Status checked = CheckArgs(request.args, "step " + request.function);
      !checked.ok()) {
    return outbox_.Add([accepted = std::move(accepted), checked] { accepted(checked); });
  }
  steps_.Schedule(std::move(request), std::move(result), std::move(accepted));
  ChooseEmpty();
}

void CoordinatorCore::Join(StatusCallback done) {
  Event event(*this);
  if (abandoned_) return;
  const auto again = [self = shared_from_this(), done] { self->Join(done); };
  if (EndsWithError(done, again)) return;
  // The Join would otherwise wait for an event that never comes, because no step has chosen a
  // state.
  const bool nothing_yet = phase_.Is(Phase::kChoosing) && Idle() && !steps_.has_runs();
  if (nothing_yet) return outbox_.Add([done = std::move(done)] { done(absl::OkStatus()); });
  steps_.Join(std::move(done), again);
}

void CoordinatorCore::Done(ResultCallback<bool> done) {
  Event event(*this);
  if (abandoned_) return;
  if (EndsWithError([done](absl::Status error) { done(error); },
                    [self = shared_from_this(), done] { self->Done(done); }))
    return;
  outbox_.Add([done = std::move(done), idle = Idle()] { done(idle); });
}

void CoordinatorCore::Run(RunRequest request, std::function<void(Nest)> value,
                          StatusCallback done) {
  Event event(*this);
  if (abandoned_) return;
  if (EndsWithError(done, [self = shared_from_this(), request, value, done] {
        self->Run(request, value, done);
      }))
    return;
  absl::Status checked = CheckArgs(request.step.args, "step " + request.step.function);
  checked.Update(CheckArgs(request.source_args, "data source " + request.source));
  if (!checked.ok()) return outbox_.Add([done = std::move(done), checked] { done(checked); });
  ChooseEmpty();
  // A loop that has nothing to do must not take a paused pass, because another loop may resume it.
  if (request.last_step && steps_.totals().finished_steps >= *request.last_step &&
      !BeforeRunning()) {
    return outbox_.Add([done = std::move(done)] { done(absl::OkStatus()); });
  }
  steps_.Run(std::move(request), std::move(value), std::move(done));
}

void CoordinatorCore::StopRun(uint64_t token) {
  Event event(*this);
  if (abandoned_) return;
  steps_.StopRun(token);
}

int64_t CoordinatorCore::epoch() const {
  MutexLock lock(mu_);
  return steps_.totals().epochs;
}

int64_t CoordinatorCore::step() const {
  MutexLock lock(mu_);
  return steps_.totals().finished_steps;
}

void CoordinatorCore::SetLearningRateScale(double scale) {
  Event event(*this);
  if (abandoned_) return;
  steps_.SetLearningRateScale(scale);
}

bool CoordinatorCore::Idle() const { return steps_.is_idle() && recovery_.rewind() == nullptr; }

// ---- iterators ----

ResourceId CoordinatorCore::MakeIterator(std::string source, Nest args, bool leased) {
  Event event(*this);
  return passes_.Make(std::move(source), std::move(args), leased);
}

void CoordinatorCore::DropIterator(ResourceId iterator) {
  Event event(*this);
  passes_.Drop(iterator);
}

// ---- after an event ----

// The store now has the passes and ordinals of `mark`, so the horizon does not need to name them.
void CoordinatorCore::NoteStored(const StoredMark& mark) {
  passes_.NoteStored(mark.pass_changes);
  steps_.NoteStored(mark.lost_ordinals);
}

// Only Event calls Pump, so the code of an event does not need to know which other work it makes
// possible.
void CoordinatorCore::Pump() {
  do {
    if (phase_.Is(Phase::kReplaying) && recovery_.Replay()) FinishReplay();
    if (phase_.Is(Phase::kRunning)) IsDraining() ? FinishStartedSteps() : Continue();
    // Steps may have waited for a worker, and a checkpoint for the end of the hold.
  } while (AdmitJoined() || writes_.MaybeEndHold());
}

void CoordinatorCore::FinishStartedSteps() {
  // During a drain, waiting writes do not begin any more, and the steps in flight finish.
  writes_.GiveUpHold();
  // A loop that is over counts as an epoch in the last checkpoint.
  steps_.CompleteRuns();
  DrainIfQuiet();
}

void CoordinatorCore::Continue() {
  steps_.MaybeRaise();
  StoreState();
  checkpoint_maker_.MaybeBegin();
  writes_.Start();
  steps_.DispatchAll();
  writes_.StartBehindSteps();
  steps_.CompleteRuns();
  steps_.CompleteJoins();
  // A loop without data may have stored an error meanwhile.
  steps_.MaybeRaise();
  StoreState();
}

// While the first values of a new variable are being written, no checkpoint can be cut to make room
// in the log. So the writes of these values may begin.
bool CoordinatorCore::MayGiveId(IdFor what) const {
  const bool has_room = !recovery_.log().full() || what == IdFor::kFirstValues;
  return ids_.MayGive() && has_room && stored_.IsStored();
}

EntryId CoordinatorCore::GiveId() {
  if (ids_.NeedsSync(ids_.next())) WantSync();
  if (ids_.WantsBlock()) {
    stored_.row().id_block_end += options_.id_block;
    PutThen({stored_.row()},
            [end = stored_.row().id_block_end](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
              HitFailpoint(Failpoint::kIdBlockStored);
              core.ids_.BlockStored(end);
            });
  }
  return ids_.Give();
}

// ---- calls of the step queue ----

bool CoordinatorCore::MayBeginStep() {
  return MayGiveId() && !ResizeWaits() && !writes_.MakesStepsWait();
}

bool CoordinatorCore::FailUnlessRewindable(const std::string& why) {
  if (phase_.IsEndCertain() || Replays()) return true;
  FailJob(MakeError(Reason::kPsLost, why + RemedyOfLoss()));
  return false;
}

void CoordinatorCore::DispatchLater(absl::Duration wait) {
  // The event itself changes nothing, but Pump runs after it.
  Later(wait, [](CoordinatorCore&) {});
}

// Records a finished step for Inspect.
void CoordinatorCore::OnFinished(const Step& step, const Report& report) {
  if (!keep_history_) return;
  history_.finished[step.id] = report.participants;
  if (step.replayed) return;
  for (const InputLease& lease : step.leases) {
    int64_t count = lease.count;
    for (const EndedInput& ended : report.ended) {
      const int64_t position = ended.position.value_or(lease.first);
      if (ended.iterator == lease.iterator && position >= lease.first)
        count = std::min(count, position - lease.first);
    }
    if (count > 0) history_.finished_positions[lease.iterator].push_back({lease.first, count});
  }
}

}  // namespace divvy
