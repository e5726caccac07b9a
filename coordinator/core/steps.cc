// The queue, dispatch, reports, and lazy cancellation (semantics of TensorFlow's ClusterCoordinator, 3.2 to 3.5).
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/failpoint.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/status_message.h"
#include "coordinator/core/coordinator_core.h"

namespace divvy {
namespace {

void CollectIterators(const Nest& args, std::vector<ResourceId>& iterators) {
  args.MapLeaves([&iterators](const Nest& leaf) -> absl::StatusOr<Nest> {
        if (leaf.kind() == Nest::Kind::kHandle) iterators.push_back(ResourceId(leaf.handle()->id));
        return leaf;
      })
      .IgnoreError();
}

// The same error, told with where it happened.
absl::Status At(const absl::Status& error, const std::string& where) {
  return error.ok() ? error : WithMessage(error, absl::StrCat(where, ": ", error.message()));
}

// What a worker may say of its step. Reasons that concern a task or the whole job are not a worker's to give: a program that returns such an error would end
// as if its job had been taken over, or were refused.
absl::Status OfStep(const absl::Status& error) {
  if (!RuleHolds(Rule::kStepErrorsAreOfSteps)) return error;
  switch (ReasonOf(error)) {
    case Reason::kNone:
    case Reason::kInvalid:
    case Reason::kUnknownShard:
    case Reason::kBadCommit:
    case Reason::kMemoryLimit:
    case Reason::kOverloaded:
    case Reason::kInputAborted:
    case Reason::kEndOfData: return error;
    default: {
      ErrorDetail detail = DetailOf(error);
      absl::Status plain(error.code(), error.message());
      return detail.user ? MarkUser(plain) : plain;
    }
  }
}

constexpr size_t kMostPutOff = 64;
constexpr absl::Duration kFirstPutOff = absl::Milliseconds(100), kLongestPutOff = absl::Seconds(10);

absl::Status Cancelled(const std::string& function) {
  return MakeError(Reason::kBatchCancelled, absl::StrCat("step ", function, " was cancelled: another step of its batch failed"));
}

}  // namespace

// ---- the program's calls ----

bool CoordinatorCore::RaisesInstead(StatusCallback raise, std::function<void()> again) {
  if (!job_error_.ok()) {
    outbox_.Add([raise = std::move(raise), error = job_error_] { raise(error); });
    return true;
  }
  if (error_.ok()) return false;
  raisers_.push_back({std::move(raise), std::move(again), nullptr});
  StartCancelling();
  Pump();
  return true;
}

absl::Status CoordinatorCore::CheckArgs(const Nest& args, absl::string_view what) const {
  RETURN_IF_ERROR(args.status());
  const int64_t bytes = args.size_bytes();
  if (bytes <= options_.max_args_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the arguments of ", what, " are ", bytes, " bytes, more than the limit of ", options_.max_args_bytes,
                                                 ": keep large data in variables, or in files that a data source reads"));
}

void CoordinatorCore::Schedule(StepRequest request, ResultCallback<Nest> result, StatusCallback accepted) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  const auto again = [self = shared_from_this(), request, result, accepted] { self->Schedule(request, result, accepted); };
  if (RaisesInstead(accepted, again)) return;
  if (const absl::Status checked = CheckArgs(request.args, "step " + request.function); !checked.ok()) {
    return outbox_.Add([accepted = std::move(accepted), checked] { accepted(checked); });
  }
  waiting_schedules_.push_back({std::move(request), std::move(result), std::move(accepted)});
  ChooseEmpty();
  Pump();
}

void CoordinatorCore::Join(StatusCallback done) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  if (RaisesInstead(done, [self = shared_from_this(), done] { self->Join(done); })) return;
  const bool nothing_yet = phase_ == Phase::kChoosing && Idle() && runs_.empty();  // and nobody else will make it begin
  if (nothing_yet) return outbox_.Add([done = std::move(done)] { done(absl::OkStatus()); });
  joins_.push_back(std::move(done));
  Pump();
}

void CoordinatorCore::Done(ResultCallback<bool> done) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  if (RaisesInstead([done](absl::Status error) { done(error); }, [self = shared_from_this(), done] { self->Done(done); })) return;
  outbox_.Add([done = std::move(done), idle = Idle()] { done(idle); });
}

void CoordinatorCore::Run(RunRequest request, std::function<void(Nest)> value, StatusCallback done) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  if (RaisesInstead(done, [self = shared_from_this(), request, value, done] { self->Run(request, value, done); })) return;
  absl::Status checked = CheckArgs(request.step.args, "step " + request.step.function);
  checked.Update(CheckArgs(request.source_args, "data source " + request.source));
  if (!checked.ok()) return outbox_.Add([done = std::move(done), checked] { done(checked); });
  ChooseEmpty();
  if (request.last_step && finished_steps_ >= *request.last_step && !BeforeRunning()) {  // before it takes a pass that another goes on with
    return outbox_.Add([done = std::move(done)] { done(absl::OkStatus()); });
  }
  auto run = std::make_shared<RunState>();
  run->request = std::move(request);
  run->value = std::move(value);
  run->done = std::move(done);
  run->iterator = passes_.BeginLoop(run->request);
  runs_.push_back(std::move(run));
  Pump();
}

void CoordinatorCore::StopRun(uint64_t token) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  for (const auto& run : runs_) {
    if (run->request.token == token) run->stopped = true;
  }
  Pump();
}

int64_t CoordinatorCore::epoch() const {
  MutexLock lock(mu_);
  return epochs_;
}

int64_t CoordinatorCore::step() const {
  MutexLock lock(mu_);
  return finished_steps_;
}

void CoordinatorCore::SetLearningRateScale(double scale) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  if (std::isfinite(scale)) {
    learning_rate_scale_ = scale;
  } else {
    StoreError(absl::InvalidArgumentError(absl::StrCat("SetLearningRateScale: ", scale, " is no finite number; ", learning_rate_scale_, " stays")));
    Pump();
  }
}

bool CoordinatorCore::Idle() const { return queue_.empty() && waiting_schedules_.empty() && in_flight_ == 0 && !recovery_; }

// ---- iterators and runs ----

ResourceId CoordinatorCore::MakeIterator(std::string source, Nest args, bool leased) {
  CoreLock lock(mu_, outbox_);
  return passes_.Make(std::move(source), std::move(args), leased);
}

void CoordinatorCore::DropIterator(ResourceId iterator) {
  CoreLock lock(mu_, outbox_);
  passes_.Drop(iterator);
}

// Whether the run wants another step now. At the end of a pass that is not the last, begins the next.
bool CoordinatorCore::RunMakesMore(RunState& run) {
  if (run.stopped) return false;
  const std::optional<int64_t> last = run.request.last_step;
  if (last && finished_steps_ + run.outstanding >= *last) return false;
  std::vector<ResourceId> read{run.iterator};
  CollectIterators(run.request.step.args, read);
  if (std::none_of(read.begin(), read.end(), [this](ResourceId id) DIVVY_REQUIRES(mu_) { return passes_.IsExhausted(id); })) return true;
  if (!last || run.outstanding > 0) return false;
  if (passes_.FinishedIn(run.iterator) == 0) {
    StoreError(absl::InvalidArgumentError(absl::StrCat("data source \"", run.request.source, "\" has no element: step ", *last, " cannot be reached")));
    return false;
  }
  run.iterator = passes_.NextPass(run.request, run.iterator);
  return true;
}

std::shared_ptr<CoordinatorCore::Step> CoordinatorCore::NextOfRuns() {
  for (const auto& run : std::vector<std::shared_ptr<RunState>>(runs_.begin(), runs_.end())) {  // a run without data takes them all away
    if (!RunMakesMore(*run)) continue;
    auto step = std::make_shared<Step>();
    step->request = run->request.step;
    Nest::List args{Nest(PerWorkerHandle{run->iterator.value()})};
    if (const Nest::List* rest = step->request.args.list()) args.insert(args.end(), rest->begin(), rest->end());
    step->request.args = Nest(std::move(args));
    CollectIterators(step->request.args, step->iterators);  // the program's own, too
    step->run = run;
    return step;
  }
  return nullptr;
}

// ---- dispatch ----

std::vector<InputLease> CoordinatorCore::OpenLeases() const {
  std::vector<InputLease> leases;
  for (const auto& [id, step] : open_steps_) leases.insert(leases.end(), step->leases.begin(), step->leases.end());
  return leases;
}

// What the servers need not say of passes and ordinals any more, for the store does.
void CoordinatorCore::NoteStored(const StoredMark& mark) {
  passes_.NoteStored(mark.pass_changes);
  while (!lost_ids_.empty() && lost_ids_.front().first <= mark.lost_ordinals) lost_ids_.pop_front();
}

void CoordinatorCore::Pump() {
  if (phase_ == Phase::kReplaying) return PumpReplay();
  if (phase_ != Phase::kRunning) return;
  if (draining_) {
    GiveUpWriteHold();  // the writes that wait are not begun any more, and the steps in flight are to finish
    CompleteRuns();     // a loop that is over counts as an epoch in the last checkpoint
    return DrainIfQuiet();
  }
  MaybeRaise();
  StoreState();
  checkpoint_maker_.MaybeBegin();
  StartWrites();
  do AdmitSchedules();  // each dispatch may make room in the queue
  while (DispatchOne());
  StartWritesBehindSteps();
  CompleteRuns();
  CompleteWaiters();
  MaybeRaise();  // a run without data has stored an error meanwhile
  StoreState();
}

// Queues the steps that wait for room.
void CoordinatorCore::AdmitSchedules() {
  const auto has_room = [this]()
                            DIVVY_REQUIRES(mu_) { return options_.max_queued_steps <= 0 || static_cast<int64_t>(queue_.size()) < options_.max_queued_steps; };
  while (!waiting_schedules_.empty() && has_room() && !cancelling_) {
    WaitingSchedule waiting = std::move(waiting_schedules_.front());
    waiting_schedules_.pop_front();
    if (absl::Status refused = passes_.ClaimNumber(waiting.request); !refused.ok()) {
      outbox_.Add([accepted = std::move(waiting.accepted), refused = std::move(refused)] { accepted(refused); });
      continue;
    }
    auto step = std::make_shared<Step>();
    step->request = std::move(waiting.request);
    CollectIterators(step->request.args, step->iterators);
    step->result = std::move(waiting.result);
    passes_.Use(*step, 1);
    queue_.push_back(std::move(step));
    outbox_.Add([accepted = std::move(waiting.accepted)] { accepted(absl::OkStatus()); });
  }
}

// While values are being brought to a variable that is made, no checkpoint can be cut that makes room in the log: the writes that bring them are let in.
bool CoordinatorCore::MayGiveId(IdFor what) const {
  const bool has_room = !log_.full() || what == IdFor::kFirstValues;
  return ids_.MayGive() && has_room && StateIsStored();
}

EntryId CoordinatorCore::GiveId() {
  if (ids_.NeedsSync(ids_.next())) WantSync();
  if (ids_.WantsBlock()) {
    row_.id_block_end += options_.id_block;
    PutThen({row_}, [end = row_.id_block_end](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) {
      HitFailpoint(Failpoint::kIdBlockStored);
      core.ids_.BlockStored(end);
      core.Pump();
    });
  }
  return ids_.Give();
}

// The ready worker with the most room for `step`, one that has returned it only where no other has room: else a worker that can run nothing, and so has always
// room, uses up the attempts of all steps. Null: there is none.
CoordinatorCore::Worker* CoordinatorCore::PickWorker(const Step& step) {
  Worker* best = nullptr;
  for (auto& [index, worker] : workers_.all()) {
    if (worker.state != Worker::State::kReady || worker.leaving || !HasRoom(worker)) continue;
    const auto may_read = [this, &worker = worker](ResourceId id) DIVVY_REQUIRES(mu_) { return passes_.MayRead(worker, id); };
    if (!std::all_of(step.iterators.begin(), step.iterators.end(), may_read)) continue;
    const auto rank = [&step](const Worker& each) { return std::make_pair(step.returned_by.count(each.index), each.in_flight.size()); };
    if (best == nullptr || rank(worker) < rank(*best)) best = &worker;
  }
  return best;
}

// A step that would be run again is cancelled also where an error waits for the call that raises it: that call would cancel it first of all.
StepFacts CoordinatorCore::FactsOf(const Step& step) const {
  return {step.attempt - step.forgiven,
          static_cast<uint32_t>(options_.max_step_attempts),
          cancelling_ || !error_.ok(),
          step.applied,
          step.replayed,
          RuleHolds(Rule::kDeviceLossesAreCounted) ? step.devices_lost.size() : 0};
}

bool CoordinatorCore::DispatchOne() {
  const absl::Duration now = clock_.Elapsed();
  const auto next = std::find_if(queue_.begin(), queue_.end(), [now](const auto& queued) { return queued->not_before <= now; });
  const bool from_queue = next != queue_.end();
  std::shared_ptr<Step> step = from_queue ? *next : cancelling_ || queue_.size() > kMostPutOff ? nullptr : NextOfRuns();
  if (step == nullptr) return false;
  const bool first = step->id == EntryId();
  Worker* worker = PickWorker(*step);
  if (worker != nullptr && first) {
    passes_.NoteTraining(*step);
    StoreState();  // where a pass stands is in no server: the store knows that it is under way before its first positions are given
  }
  if (worker == nullptr || (first && (!MayGiveId() || ResizeWaits() || WaitsForWrites()))) return false;
  if (from_queue) queue_.erase(next);
  if (step->run != nullptr && first) {
    ++step->run->outstanding;
    passes_.Use(*step, 1);
  }
  if (first && !passes_.TakeLeases(*step, *worker)) {
    Close(step, EndOfData(absl::StrCat("step ", step->request.function, ": its data has ended")));  // gives back what it was to read of the others
    return true;
  }
  if (first) {
    step->id = GiveId();
    if (!step->request.read_only) step->ordinal = next_ordinal_++;
    step->learning_rate_scale = learning_rate_scale_;
    open_steps_.emplace(step->id, step);
    LogOpen(*step);
  }
  SendStep(step, *worker);
  return true;
}

void CoordinatorCore::SendStep(const std::shared_ptr<Step>& step, Worker& worker) {
  step->state = Step::State::kInFlight;
  step->worker = worker.index;
  if (!step->replayed) step->begun = log_.finishes();
  ++step->attempt;
  step->overran = false;
  step->refusal = absl::OkStatus();
  ++in_flight_;
  if (worker.in_flight.empty()) worker.run_time = absl::ZeroDuration();
  worker.in_flight.push_back(step);
  Dispatch dispatch;
  dispatch.step = step->id;
  dispatch.attempt = step->attempt;
  dispatch.ordinal = step->ordinal;
  dispatch.function = step->request.function;
  dispatch.args = step->request.args;
  dispatch.inputs = step->leases;
  dispatch.learning_rate_scale = step->learning_rate_scale;
  workers_.Send(worker, std::move(dispatch));
  if (kHasFailpoints) outbox_.Add([] { HitFailpoint(Failpoint::kDispatched); });
}

// ---- reports ----

void CoordinatorCore::OnReport(Worker& worker, Report report) {
  if (phase_ == Phase::kFailed) return;
  const auto found = std::find_if(worker.in_flight.begin(), worker.in_flight.end(),
                                  [&](const auto& step) { return step->id == report.step && step->attempt == report.attempt; });
  if (found == worker.in_flight.end()) return;
  const std::shared_ptr<Step> step = *found;
  worker.in_flight.erase(found);
  worker.run_time = absl::ZeroDuration();
  --in_flight_;
  max_staleness_ = std::max(max_staleness_, report.staleness);
  if (passes_.NoteEnds(worker, *step, report) && report.outcome == StepOutcome::kEndOfData)
    report.outcome = StepOutcome::kSystem;  // another worker has the data
  if (report.outcome == StepOutcome::kCancelled && !step->refusal.ok()) {
    report.outcome = StepOutcome::kFailed;
    report.error = step->refusal;
  }
  if (report.outcome == StepOutcome::kSystem && ReasonOf(report.error) == Reason::kDeviceLost) NoteDeviceLost(worker, *step, report.error);
  StepJudgement judgement = JudgeReport(FactsOf(*step), report.outcome, report.participants);
  if (judgement.rewind && report.outcome == StepOutcome::kOk && !RuleHolds(Rule::kRewindWhenReRunDiffers)) judgement = {StepVerdict::kFinish};
  if (judgement.verdict == StepVerdict::kFinish && keep_history_) KeepHistory(*step, report);
  if (judgement.verdict == StepVerdict::kRequeue && report.outcome != StepOutcome::kOk) {
    step->returned_by.insert(worker.index);
    PutOff(*step);
  }
  const std::string number = step->ordinal ? absl::StrCat(" ", *step->ordinal) : "";
  Settle(step, judgement, std::move(report.value), At(OfStep(report.error), absl::StrCat("step ", step->request.function, number, ", worker ", worker.index)));
  Pump();
}

// Each process counts once, whatever it says: one worker alone cannot have a step given up.
void CoordinatorCore::NoteDeviceLost(Worker& worker, Step& step, const absl::Status& why) {
  if (!step.devices_lost.insert(worker.incarnation).second) return;
  said_of_peers_.Warning(absl::StrCat("worker ", worker.index, " has lost a GPU in step ", step.request.function, ", which is run again: ", why.message()));
}

// What Inspect tells of a finished step.
void CoordinatorCore::KeepHistory(const Step& step, const Report& report) {
  history_.finished[step.id] = report.participants;
  if (step.replayed) return;
  for (const InputLease& lease : step.leases) {
    int64_t count = lease.count;
    for (const EndedInput& ended : report.ended) {
      const int64_t position = ended.position.value_or(lease.first);
      if (ended.iterator == lease.iterator && position >= lease.first) count = std::min(count, position - lease.first);
    }
    if (count > 0) history_.finished_positions[lease.iterator].push_back({lease.first, count});
  }
}

// A step whose worker cannot run it now would use up its attempts in milliseconds. The first time it is tried again at once.
void CoordinatorCore::PutOff(Step& step) {
  const uint32_t tries = step.attempt - step.forgiven;
  if (tries < 2) return;
  const absl::Duration wait = std::min(kFirstPutOff * (1 << std::min<uint32_t>(tries - 2, 10)), kLongestPutOff);
  step.not_before = clock_.Elapsed() + wait;
  Later(wait, [](CoordinatorCore& core) DIVVY_REQUIRES(core.mu_) { core.Pump(); });
}

void CoordinatorCore::Settle(const std::shared_ptr<Step>& step, const StepJudgement& judgement, Nest value, absl::Status error) {
  if (step->state == Step::State::kClosed) return;  // the job has failed, and its workers report on
  std::string why;
  if (judgement.rewind) {
    why = absl::StrCat("step ", step->request.function, " (", step->id.value(),
                       ") was half applied when its worker was lost, and running it again did not complete it (",
                       error.ok() ? "it touched other parameter servers" : error.message(), ")");
    if (!Replays()) return FailJob(MakeError(Reason::kPsLost, why + RemedyOfLoss()));
  }
  step->replayed ? SettleReplayed(step, judgement.verdict, error) : SettleAs(step, judgement.verdict, std::move(value), std::move(error));
  if (judgement.rewind) Rewind(std::move(why));
}

void CoordinatorCore::SettleAs(const std::shared_ptr<Step>& step, StepVerdict verdict, Nest value, absl::Status error) {
  switch (verdict) {
    case StepVerdict::kFinish:
      ++(step->request.read_only ? finished_reads_ : finished_steps_);
      LogFinished(*step);
      passes_.SettleNumber(*step, /*finished=*/true);
      if (step->run != nullptr) passes_.CountFinished(step->run->iterator);
      return Close(step, std::move(value));
    case StepVerdict::kEndOfData: return Close(step, EndOfData(absl::StrCat("step ", step->request.function, ": its data has ended")));
    case StepVerdict::kCancel: return Close(step, Cancelled(step->request.function));
    case StepVerdict::kRequeue:
      step->state = Step::State::kQueued;
      step->worker = -1;
      queue_.push_front(step);
      return;
    case StepVerdict::kGiveUp:
      if (step->overran) {
        error = absl::DeadlineExceededError(absl::StrCat("step ", step->request.function, " was given up after ", step->attempt,
                                                         " attempts: the last ran longer than --step_deadline (", absl::FormatDuration(options_.step_deadline),
                                                         ")"));
      } else if (ReasonOf(error) == Reason::kNone) {
        error = MakeError(Reason::kStepGaveUp,
                          absl::StrCat("step ", step->request.function, " was given up after ", step->attempt, " attempts: ", error.message()));
      }
      [[fallthrough]];
    case StepVerdict::kFail: StoreError(error); return Close(step, error);
  }
}

void CoordinatorCore::Close(const std::shared_ptr<Step>& step, absl::StatusOr<Nest> result) {
  step->state = Step::State::kClosed;
  last_progress_ = clock_.Elapsed();
  open_steps_.erase(step->id);
  if (!result.ok()) log_.Forget(step->id);
  if (!result.ok()) passes_.SettleNumber(*step, /*finished=*/false);
  if (!result.ok() && !step->replayed && step->ordinal) lost_ids_.emplace_back(++lost_ordinals_, step->id);
  // At the end of one dataset what the step was to read of the others is read by another step; a life that goes on from a cut made before the error of a loop
  // is raised takes its pass up.
  const bool had_no_data = ReasonOf(result.status()) == Reason::kEndOfData;
  if (!result.ok() && (step->run != nullptr || had_no_data) && !step->replayed) passes_.ReturnLeases(*step);
  passes_.Use(*step, -1);
  if (step->run != nullptr) {
    --step->run->outstanding;
    if (result.ok()) outbox_.Add([run = step->run, value = *result] { run->value(value); });
  }
  if (step->result) outbox_.Add([done = std::move(step->result), result = std::move(result)] { done(result); });
}

// ---- errors and cancellation ----

void CoordinatorCore::StoreError(absl::Status error) {
  if (!error_.ok()) return;
  error_ = std::move(error);
  // Who waits for steps is woken by the first error: the oldest of them raises it.
  if (joins_.empty() && runs_.empty()) return;
  for (StatusCallback& join : joins_) raisers_.push_back({join, [self = shared_from_this(), join] { self->Join(join); }, nullptr});
  for (const auto& run : runs_) {
    run->stopped = true;
    raisers_.push_back({run->done, [run] { run->done(Cancelled(run->request.step.function)); }, run});
  }
  joins_.clear();
  runs_.clear();
  StartCancelling();
}

void CoordinatorCore::StartCancelling() {
  if (cancelling_) return;
  cancelling_ = true;
  std::deque<std::shared_ptr<Step>> dirty;
  std::deque<std::shared_ptr<Step>> queued;
  queued.swap(queue_);
  for (const auto& step : queued) {
    if (step->applied.empty()) {
      Close(step, Cancelled(step->request.function));
    } else {
      dirty.push_back(step);  // some ps has applied it: it is carried through
    }
  }
  queue_ = std::move(dirty);
  for (auto& [index, worker] : workers_.all()) {
    CancelSteps cancel;
    for (const auto& step : worker.in_flight) {
      if (step->applied.empty() && !step->replayed) cancel.steps.push_back(step->id);
    }
    if (!cancel.steps.empty()) workers_.Send(worker, std::move(cancel));
  }
}

void CoordinatorCore::MaybeRaise() {
  if (!cancelling_ || recovery_ || in_flight_ > 0 || !queue_.empty() || raisers_.empty()) return;
  cancelling_ = false;
  const absl::Status error = std::exchange(error_, absl::OkStatus());
  std::deque<Raiser> raisers;
  raisers.swap(raisers_);
  for (const Raiser& raiser : raisers) {
    if (raiser.run != nullptr) passes_.FailLoop(raiser.run->iterator);
  }
  outbox_.Add([raise = std::move(raisers.front().raise), error] { raise(error); });
  raisers.pop_front();
  for (Raiser& other : raisers) outbox_.Add([again = std::move(other.again)] { again(); });
}

void CoordinatorCore::CompleteRuns() {
  for (auto run = runs_.begin(); run != runs_.end();) {
    if ((*run)->outstanding > 0 || RunMakesMore(**run) || !error_.ok()) {
      if (!error_.ok()) return;  // StoreError has taken the runs away
      ++run;
      continue;
    }
    const bool whole = !std::exchange((*run)->stopped, true);
    if (whole && !(*run)->request.last_step && !(*run)->request.step.read_only) ++epochs_;
    passes_.EndLoop((*run)->request, (*run)->iterator);
    outbox_.Add([done = std::move((*run)->done)] { done(absl::OkStatus()); });
    run = runs_.erase(run);
  }
}

void CoordinatorCore::CompleteWaiters() {
  if (joins_.empty() || !Idle()) return;
  for (StatusCallback& join : joins_) outbox_.Add([join = std::move(join)] { join(absl::OkStatus()); });
  joins_.clear();
}

}  // namespace divvy
