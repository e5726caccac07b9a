// The queue, dispatch, reports, and lazy cancellation.
#include "coordinator/core/step_queue.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/failpoint.h"
#include "base/status_message.h"
#include "protocol/error.h"

namespace divvy {
namespace {

void CollectIterators(const Nest& args, std::vector<ResourceId>& iterators) {
  args.MapLeaves([&iterators](const Nest& leaf) -> absl::StatusOr<Nest> {
        if (leaf.kind() == Nest::Kind::kHandle) iterators.push_back(ResourceId(leaf.handle()->id));
        return leaf;
      })
      .IgnoreError();
}

// Adds the place where the error happened to its message.
absl::Status At(const absl::Status& error, const std::string& where) {
  return error.ok() ? error : WithMessage(error, absl::StrCat(where, ": ", error.message()));
}

// Limits what a worker may report about its step. A worker may not give a Reason that concerns a
// task or the whole job. Otherwise a program that returns such an error would end as if its job had
// been taken over or refused.
absl::Status OfStep(const absl::Status& error) {
  if (!RuleHolds(Rule::kStepErrorsAreOfSteps)) return error;
  switch (ReasonOf(error)) {
    case Reason::kNone:
    case Reason::kInvalid:
    case Reason::kUnknownShard:
    case Reason::kBadCommit:
    case Reason::kMemoryLimit:
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
// Steps at the head of the queue that may wait for a certain worker while later ones go first.
constexpr size_t kMostPassed = 64;
// How long a step waits for a worker that has returned it less often than those with room.
constexpr absl::Duration kLongestWait = absl::Minutes(1);
constexpr absl::Duration kFirstPutOff = absl::Milliseconds(100), kLongestPutOff = absl::Seconds(10);

// The pause after so many failures in a row.
absl::Duration PutOff(uint32_t failures) {
  if (failures < 2) return absl::ZeroDuration();
  return std::min(kFirstPutOff * (1 << std::min<uint32_t>(failures - 2, 10)), kLongestPutOff);
}

// PickWorker gives up after so many workers without room.
constexpr int kMostFull = 8;
// The arguments of a step that may wait at a worker behind more than queue_ahead others.
constexpr int64_t kSmallArgs = 4 << 10;

absl::Status Cancelled(const std::string& function) {
  return MakeError(
      Reason::kBatchCancelled,
      absl::StrCat("step ", function, " was cancelled: another step of its batch failed"));
}

// Whether the step is a training step that has not finished before.
bool IsNewTraining(const coordinator_records::Step& step) {
  return !step.request.read_only && !step.replayed;
}

}  // namespace

// ---- the program's calls ----

bool StepQueue::EndsWithError(StatusCallback raise, std::function<void()> again) {
  if (error_.ok()) return false;
  error_waiters_.push_back({std::move(raise), std::move(again), nullptr});
  StartCancelling();
  return true;
}

void StepQueue::Schedule(StepRequest request, ResultCallback<Nest> result,
                         StatusCallback accepted) {
  waiting_.push_back(
      {std::move(request), std::move(result), std::move(accepted), clock_.Elapsed()});
}

void StepQueue::Run(RunRequest request, std::function<void(Nest)> value, StatusCallback done) {
  auto run = std::make_shared<RunState>();
  run->request = std::move(request);
  run->value = std::move(value);
  run->done = std::move(done);
  run->iterator = passes_.BeginLoop(run->request);
  runs_.push_back(std::move(run));
}

void StepQueue::StopRun(uint64_t token) {
  for (const auto& run : runs_) {
    if (run->request.token == token) run->stopped = true;
  }
}

void StepQueue::SetLearningRateScale(double scale) {
  if (std::isfinite(scale)) {
    learning_rate_scale_ = scale;
  } else {
    StoreError(absl::InvalidArgumentError(absl::StrCat("SetLearningRateScale: ", scale,
                                                       " is not a finite number; ",
                                                       learning_rate_scale_, " stays in use")));
  }
}

// ---- loops ----

bool StepQueue::RunMakesMore(RunState& run) {
  if (run.stopped) return false;
  const std::optional<int64_t> last = run.request.last_step;
  if (last && totals_.finished_steps + run.outstanding >= *last) return false;
  std::vector<ResourceId> read{run.iterator};
  CollectIterators(run.request.step.args, read);
  if (std::none_of(read.begin(), read.end(),
                   [this](ResourceId id) { return passes_.IsExhausted(id); }))
    return true;
  if (!last || run.outstanding > 0) return false;
  if (passes_.FinishedIn(run.iterator) == 0) {
    StoreError(absl::InvalidArgumentError(absl::StrCat("data source \"", run.request.source,
                                                       "\" has no element: step ", *last,
                                                       " cannot be reached")));
    return false;
  }
  run.iterator = passes_.NextPass(run.request, run.iterator);
  return true;
}

std::shared_ptr<StepQueue::Step> StepQueue::NextOfRuns() {
  // Iterates over a copy, because a loop without data stores an error, and that removes all loops.
  for (const auto& run : std::vector<std::shared_ptr<RunState>>(runs_.begin(), runs_.end())) {
    if (!RunMakesMore(*run)) continue;
    auto step = std::make_shared<Step>();
    step->request = run->request.step;
    Nest::List args{Nest(PerWorkerHandle{run->iterator.value()})};
    if (const Nest::List* rest = step->request.args.list())
      args.insert(args.end(), rest->begin(), rest->end());
    step->request.args = Nest(std::move(args));
    // The args may also have iterators that the program has made.
    CollectIterators(step->request.args, step->iterators);
    step->run = run;
    step->arg_bytes = step->request.args.size_bytes();
    step->queued_at = step->waits_since = clock_.Elapsed();
    return step;
  }
  return nullptr;
}

// ---- dispatch ----

void StepQueue::DispatchAll() {
  // Each dispatch may make room in the queue.
  do AdmitSchedules();
  while (DispatchOne());
}

void StepQueue::AdmitSchedules() {
  const auto has_room = [this]() {
    return options_.max_queued_steps <= 0 ||
           static_cast<int64_t>(queue_.size()) < options_.max_queued_steps;
  };
  while (!waiting_.empty() && has_room() && !cancelling_) {
    WaitingSchedule waiting = std::move(waiting_.front());
    waiting_.pop_front();
    if (absl::Status refused = passes_.ClaimNumber(waiting.request); !refused.ok()) {
      outbox_.Add([accepted = std::move(waiting.accepted), refused = std::move(refused)] {
        accepted(refused);
      });
      continue;
    }
    auto step = std::make_shared<Step>();
    step->request = std::move(waiting.request);
    CollectIterators(step->request.args, step->iterators);
    step->result = std::move(waiting.result);
    step->arg_bytes = step->request.args.size_bytes();
    step->queued_at = clock_.Elapsed();
    step->waits_since = waiting.since;
    passes_.Use(*step, 1);
    queue_.push_back(std::move(step));
    outbox_.Add([accepted = std::move(waiting.accepted)] { accepted(absl::OkStatus()); });
  }
}

absl::Duration StepQueue::Expected(const Step& step) const {
  if (step.arg_bytes > kSmallArgs) return options_.ahead_time;
  return std::min(times_.Expected(step.request.function), options_.ahead_time);
}

bool StepQueue::HasRoom(const Worker& worker, const Step& step) const {
  const int ahead = static_cast<int>(worker.in_flight.size()) - worker.slots;
  if (ahead < options_.queue_ahead) return true;
  return ahead < options_.most_ahead && worker.expected + Expected(step) <= options_.ahead_time;
}

// A worker that cannot run anything always has room, so it gets steps before others. Two rules keep
// it from using up their attempts. It rests between them. And a step that it has returned twice
// waits for a worker that has returned it less often, though not for ever: that worker may be
// stuck.
StepQueue::Choice StepQueue::Choose(const Step& step) {
  constexpr int kNever = std::numeric_limits<int>::max();
  const absl::Duration now = clock_.Elapsed();
  Choice choice;
  int least = kNever, least_of_full = kNever, full = 0;
  for (const auto& [load, index] : workers_.by_load()) {
    Worker& worker = workers_.all()[index];
    if (worker.leaving || worker.rests_until > now) continue;
    const bool has_room = HasRoom(worker, step);
    // The workers behind it have as many steps in flight, or more, but perhaps shorter ones.
    // Looking at each of a thousand workers whenever a step is scheduled would cost too much.
    if (!has_room && ++full == kMostFull) break;
    choice.has_room = choice.has_room || has_room;
    const auto may_read = [this, &worker](ResourceId id) { return passes_.MayRead(worker, id); };
    if (!std::all_of(step.iterators.begin(), step.iterators.end(), may_read)) continue;
    const auto found = step.returned_by.find(worker.incarnation);
    const int returned = found == step.returned_by.end() ? 0 : found->second;
    if (has_room && returned == 0) return {&worker, true};
    if (has_room && returned < least) choice.worker = &worker;
    int& fewest = has_room ? least : least_of_full;
    fewest = std::min(fewest, returned);
  }
  const bool is_early = now - step.not_before < kLongestWait;
  if (least > 1 && least_of_full < least && is_early) choice.worker = nullptr;
  return choice;
}

// While an error waits for a call to raise it, a step is cancelled instead of being run again,
// because that call would cancel it anyway.
StepFacts StepQueue::FactsOf(const Step& step) const {
  return {step.attempt - step.forgiven,
          static_cast<uint32_t>(options_.max_step_attempts),
          cancelling_ || !error_.ok(),
          step.applied,
          step.replayed,
          RuleHolds(Rule::kDeviceLossesAreCounted) ? step.devices_lost.size() : 0};
}

bool StepQueue::DispatchOne() {
  const absl::Duration now = clock_.Elapsed();
  size_t passed = 0;
  for (auto next = queue_.begin(); next != queue_.end() && passed < kMostPassed; ++next) {
    if ((*next)->not_before > now) continue;
    const Choice choice = Choose(**next);
    if (choice.worker != nullptr) {
      const std::shared_ptr<Step> step = *next;
      if (!MayBegin(*step)) return false;
      queue_.erase(next);
      Begin(step, *choice.worker);
      return true;
    }
    if (!choice.has_room) return false;
    // It waits for another worker than those that have room.
    ++passed;
  }
  const std::shared_ptr<Step> step =
      cancelling_ || queue_.size() > kMostPutOff ? nullptr : NextOfRuns();
  if (step == nullptr) return false;
  Worker* const worker = PickWorker(*step);
  if (worker == nullptr || !MayBegin(*step)) return false;
  Begin(step, *worker);
  return true;
}

bool StepQueue::MayBegin(const Step& step) {
  if (step.id != EntryId()) return true;
  passes_.NoteTraining(step);
  // No server knows a new pass. So the store gets the pass before its first positions are given.
  host_.StoreState();
  return host_.MayBeginStep();
}

void StepQueue::Begin(const std::shared_ptr<Step>& step, Worker& worker) {
  if (step->id != EntryId() || Open(step, worker)) Send(step, worker);
}

bool StepQueue::Open(const std::shared_ptr<Step>& step, Worker& worker) {
  if (step->run != nullptr) {
    ++step->run->outstanding;
    passes_.Use(*step, 1);
  }
  if (!passes_.TakeLeases(*step, worker)) {
    // Close also returns the positions of the step's other iterators.
    Close(step, EndOfData(absl::StrCat("step ", step->request.function, ": its data has ended")));
    return false;
  }
  step->id = host_.GiveId();
  if (!step->request.read_only) step->ordinal = totals_.next_ordinal++;
  step->learning_rate_scale = learning_rate_scale_;
  step->tick = tick();
  open_.emplace(step->id, step);
  LogOpen(*step);
  return true;
}

void StepQueue::Send(const std::shared_ptr<Step>& step, Worker& worker) {
  step->state = Step::State::kInFlight;
  step->worker = worker.index;
  if (!step->replayed) step->begun = log_.finishes();
  ++step->attempt;
  step->overran = false;
  step->refusal = absl::OkStatus();
  ++in_flight_;
  if (worker.in_flight.empty()) worker.run_time = absl::ZeroDuration();
  step->recalled = false;
  step->expected = Expected(*step);
  workers_.AddInFlight(worker, step);
  Dispatch dispatch;
  dispatch.step = step->id;
  dispatch.attempt = step->attempt;
  dispatch.ordinal = step->ordinal;
  dispatch.function = step->request.function;
  dispatch.args = step->request.args;
  dispatch.inputs = step->leases;
  dispatch.learning_rate_scale = step->learning_rate_scale;
  dispatch.tick = step->tick;
  step->sent_at = clock_.Elapsed();
  if (options_.traces != nullptr) step->trace_over = options_.traces->AskFor(step->sent_at);
  dispatch.trace_over = step->trace_over;
  dispatch.want_gradients = IsNewTraining(*step) && samples_.Ask(step->id, step->attempt);
  workers_.Send(worker, std::move(dispatch));
  if (kHasFailpoints) outbox_.Add([] { HitFailpoint(Failpoint::kDispatched); });
}

// ---- traces ----

// A step counts as slow by what the coordinator saw: a worker does not know how long its messages
// were under way, and may lie.
void StepQueue::Trace(const Step& step, int worker, std::optional<StepOutcome> outcome,
                      std::optional<StepTrace> parts) {
  if (options_.traces == nullptr || !step.trace_over) return;
  const absl::Duration now = clock_.Elapsed(), total = now - step.sent_at;
  // The worker has sent no times, because it was fast enough, and so was the whole.
  if (outcome && !parts && total < *step.trace_over) return;
  TracedStep run{step.id, step.attempt, step.ordinal, step.request.function, worker, outcome, now};
  run.queued = std::max(step.sent_at - step.waits_since, absl::ZeroDuration());
  run.total = total;
  run.parts = std::move(parts);
  options_.traces->Add(std::move(run), *step.trace_over);
}

// ---- reports ----

void StepQueue::OnReport(Worker& worker, Report report) {
  const auto found = std::find_if(
      worker.in_flight.begin(), worker.in_flight.end(),
      [&](const auto& step) { return step->id == report.step && step->attempt == report.attempt; });
  if (found == worker.in_flight.end()) return;
  const std::shared_ptr<Step> step = *found;
  workers_.RemoveInFlight(worker, *step);
  if (report.outcome == StepOutcome::kOk && report.took > absl::ZeroDuration())
    times_.Note(step->request.function, report.took);
  worker.run_time = absl::ZeroDuration();
  --in_flight_;
  max_staleness_ = std::max(max_staleness_, report.staleness);
  // A cancelled step that took no time had not begun. One that began took at least 1 ns.
  const bool had_begun =
      report.outcome != StepOutcome::kCancelled || report.took > absl::ZeroDuration();
  num_runs_ += had_begun;
  if (had_begun) Trace(*step, worker.index, report.outcome, std::move(report.trace));
  const bool could_not = report.outcome == StepOutcome::kSystem;
  if (passes_.NoteEnds(worker, *step, report) && report.outcome == StepOutcome::kEndOfData)
    // Another worker has the data, so the step is run again.
    report.outcome = StepOutcome::kSystem;
  if (report.outcome == StepOutcome::kCancelled && !step->refusal.ok()) {
    report.outcome = StepOutcome::kFailed;
    report.error = step->refusal;
  }
  if (report.outcome == StepOutcome::kSystem && ReasonOf(report.error) == Reason::kDeviceLost)
    NoteDeviceLost(worker, *step, report.error);
  StepJudgement judgement = JudgeReport(FactsOf(*step), report.outcome, report.participants);
  if (judgement.rewind && report.outcome == StepOutcome::kOk &&
      !RuleHolds(Rule::kRewindWhenReRunDiffers))
    judgement = {StepVerdict::kFinish};
  if (judgement.verdict == StepVerdict::kFinish) {
    host_.OnFinished(*step, report);
    if (IsNewTraining(*step)) samples_.Note(worker.index, totals_.finished_steps + 1, report);
  }
  samples_.OnEnd(step->id, report.attempt);
  if (judgement.verdict == StepVerdict::kRequeue && report.outcome != StepOutcome::kOk) {
    if (report.outcome == StepOutcome::kCancelled && step->recalled) {
      ++step->forgiven;
    } else {
      ++step->returned_by[worker.incarnation];
      Postpone(*step);
    }
  }
  if (could_not) Rest(worker);
  if (report.outcome == StepOutcome::kOk || report.outcome == StepOutcome::kFailed) {
    worker.returned = 0;
    worker.rests_until = absl::ZeroDuration();
  }
  const std::string number = step->ordinal ? absl::StrCat(" ", *step->ordinal) : "";
  Settle(step, judgement, std::move(report.value),
         At(OfStep(report.error),
            absl::StrCat("step ", step->request.function, number, ", worker ", worker.index)));
}

// Each worker process counts once, however often it reports a loss. So one worker alone cannot
// cause a step to be given up.
void StepQueue::NoteDeviceLost(const Worker& worker, Step& step, const absl::Status& why) {
  if (!step.devices_lost.insert(worker.incarnation).second) return;
  said_.Warning(absl::StrCat("worker ", worker.index, " has lost a GPU in step ",
                             step.request.function, ", which is run again: ", why.message()));
}

// Without a pause, a step that no worker can run now would use up its attempts in milliseconds. The
// first retry is immediate.
void StepQueue::Postpone(Step& step) {
  const absl::Duration wait = PutOff(step.attempt - step.forgiven);
  if (wait == absl::ZeroDuration()) return;
  step.not_before = clock_.Elapsed() + wait;
  host_.DispatchLater(wait);
}

void StepQueue::Rest(Worker& worker) {
  if (Rests(worker)) return;
  const absl::Duration wait = PutOff(++worker.returned);
  if (wait == absl::ZeroDuration()) return;
  worker.rests_until = clock_.Elapsed() + wait;
  host_.DispatchLater(wait);
}

void StepQueue::Settle(const std::shared_ptr<Step>& step, const StepJudgement& judgement,
                       Nest value, absl::Status error) {
  // The job has failed. Its workers may still report.
  if (step->state == Step::State::kClosed) return;
  std::string why;
  if (judgement.rewind) {
    why = absl::StrCat(
        "step ", step->request.function, " (", step->id.value(),
        ") was half applied when its worker was lost, and running it again did not complete it (",
        error.ok() ? "it touched other parameter servers" : error.message(), ")");
    if (!host_.FailUnlessRewindable(why)) return;
  }
  step->replayed ? host_.SettleReplayed(step, judgement.verdict, error)
                 : SettleAs(step, judgement.verdict, std::move(value), std::move(error));
  if (judgement.rewind) host_.Rewind(std::move(why));
}

void StepQueue::SettleAs(const std::shared_ptr<Step>& step, StepVerdict verdict, Nest value,
                         absl::Status error) {
  switch (verdict) {
    case StepVerdict::kFinish: return Finish(step, std::move(value));
    case StepVerdict::kEndOfData:
      return Close(
          step, EndOfData(absl::StrCat("step ", step->request.function, ": its data has ended")));
    case StepVerdict::kCancel: return Close(step, Cancelled(step->request.function));
    case StepVerdict::kRequeue:
      step->state = Step::State::kQueued;
      step->worker = -1;
      step->waits_since = clock_.Elapsed();
      queue_.push_front(step);
      return;
    case StepVerdict::kGiveUp: error = GaveUp(*step, std::move(error)); [[fallthrough]];
    case StepVerdict::kFail: StoreError(error); return Close(step, error);
  }
}

absl::Status StepQueue::GaveUp(const Step& step, absl::Status error) const {
  const std::string gave_up = absl::StrCat("step ", step.request.function, " was given up after ",
                                           step.attempt, " attempts: ");
  if (step.overran) {
    return absl::DeadlineExceededError(
        absl::StrCat(gave_up, "the last ran longer than --step_deadline (",
                     absl::FormatDuration(options_.step_deadline), ")"));
  }
  return ReasonOf(error) == Reason::kNone
             ? MakeError(Reason::kStepGaveUp, absl::StrCat(gave_up, error.message()))
             : error;
}

void StepQueue::Finish(const std::shared_ptr<Step>& step, Nest value) {
  ++num_counted_runs_;
  ++(step->request.read_only ? totals_.finished_reads : totals_.finished_steps);
  LogFinished(*step);
  passes_.SettleNumber(*step, /*finished=*/true);
  if (step->run != nullptr) passes_.CountFinished(step->run->iterator);
  Close(step, std::move(value));
}

void StepQueue::Close(const std::shared_ptr<Step>& step, absl::StatusOr<Nest> result) {
  step->state = Step::State::kClosed;
  last_progress_ = clock_.Elapsed();
  open_.erase(step->id);
  if (!result.ok()) log_.Forget(step->id);
  if (!result.ok()) passes_.SettleNumber(*step, /*finished=*/false);
  if (!result.ok() && !step->replayed && step->ordinal)
    lost_ids_.emplace_back(++lost_ordinals_, step->id);
  // If one dataset of a step has ended, the step's positions in its other datasets go to another
  // step. The positions of a loop's failed step are returned as well: another life of the
  // coordinator may continue from a cut that was made before the error was raised, and it then
  // resumes the pass of the loop.
  const bool had_no_data = ReasonOf(result.status()) == Reason::kEndOfData;
  if (!result.ok() && (step->run != nullptr || had_no_data) && !step->replayed)
    passes_.ReturnLeases(*step);
  passes_.Use(*step, -1);
  if (step->run != nullptr) {
    --step->run->outstanding;
    if (result.ok()) outbox_.Add([run = step->run, value = *result] { run->value(value); });
  }
  if (step->result)
    outbox_.Add([done = std::move(step->result), result = std::move(result)] { done(result); });
}

// ---- errors and cancellation ----

void StepQueue::StoreError(absl::Status error) {
  if (!error_.ok()) return;
  error_ = std::move(error);
  // The first error wakes all calls that wait for steps. The oldest of them raises it.
  if (joins_.empty() && runs_.empty()) return;
  for (ErrorWaiter& join : joins_) error_waiters_.push_back(std::move(join));
  for (const auto& run : runs_) {
    run->stopped = true;
    error_waiters_.push_back(
        {run->done, [run] { run->done(Cancelled(run->request.step.function)); }, run});
  }
  joins_.clear();
  runs_.clear();
  StartCancelling();
}

void StepQueue::StartCancelling() {
  if (cancelling_) return;
  cancelling_ = true;
  std::deque<std::shared_ptr<Step>> dirty;
  std::deque<std::shared_ptr<Step>> queued;
  queued.swap(queue_);
  for (const auto& step : queued) {
    if (step->applied.empty()) {
      Close(step, Cancelled(step->request.function));
    } else {
      // Some ps has applied the step, so it is run again until it is applied everywhere.
      dirty.push_back(step);
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

void StepQueue::MaybeRaise() {
  if (!cancelling_ || in_flight_ > 0 || !queue_.empty() || error_waiters_.empty()) return;
  cancelling_ = false;
  const absl::Status error = std::exchange(error_, absl::OkStatus());
  std::deque<ErrorWaiter> waiters;
  waiters.swap(error_waiters_);
  for (const ErrorWaiter& waiter : waiters) {
    if (waiter.run != nullptr) passes_.FailLoop(waiter.run->iterator);
  }
  outbox_.Add([raise = std::move(waiters.front().raise), error] { raise(error); });
  waiters.pop_front();
  for (ErrorWaiter& other : waiters) outbox_.Add([again = std::move(other.again)] { again(); });
}

void StepQueue::CompleteRuns() {
  for (auto run = runs_.begin(); run != runs_.end();) {
    if ((*run)->outstanding > 0 || RunMakesMore(**run) || !error_.ok()) {
      // StoreError has cleared runs_.
      if (!error_.ok()) return;
      ++run;
      continue;
    }
    const bool whole = !std::exchange((*run)->stopped, true);
    if (whole && !(*run)->request.last_step && !(*run)->request.step.read_only) ++totals_.epochs;
    passes_.EndLoop((*run)->request, (*run)->iterator);
    outbox_.Add([done = std::move((*run)->done)] { done(absl::OkStatus()); });
    run = runs_.erase(run);
  }
}

void StepQueue::CompleteJoins() {
  if (joins_.empty() || !is_idle()) return;
  for (ErrorWaiter& join : joins_)
    outbox_.Add([done = std::move(join.raise)] { done(absl::OkStatus()); });
  joins_.clear();
}

// ---- other events ----

void StepQueue::OnFenced(const std::shared_ptr<Step>& step, int worker) {
  if (step->state != Step::State::kFencing) return;
  --in_flight_;
  samples_.OnEnd(step->id, step->attempt);
  Trace(*step, worker, std::nullopt, std::nullopt);
  const absl::Status lost = MakeError(
      Reason::kStepGaveUp,
      absl::StrCat("step ", step->request.function, " (", step->id.value(), ") was given up after ",
                   step->attempt, " attempts: each time its worker was lost, the last time worker ",
                   worker));
  Settle(step, JudgeLoss(FactsOf(*step)), Nest(), lost);
}

void StepQueue::RecallWaiting(Worker& worker) {
  CancelSteps recalled;
  for (size_t i = static_cast<size_t>(worker.slots + options_.queue_ahead);
       i < worker.in_flight.size(); ++i) {
    Step& step = *worker.in_flight[i];
    if (step.replayed || std::exchange(step.recalled, true)) continue;
    recalled.steps.push_back(step.id);
  }
  if (!recalled.steps.empty()) workers_.Send(worker, std::move(recalled));
}

void StepQueue::Refuse(int worker, EntryId id, const absl::Status& why) {
  const auto step = open_.find(id);
  if (step == open_.end() || step->second->worker != worker) return;
  step->second->refusal = why;
  workers_.Send(workers_.all()[worker], CancelSteps{{id}});
}

void StepQueue::OnWritten() {
  for (auto& [id, step] : open_) step->begun = log_.finishes();
}

void StepQueue::NoteStored(int64_t lost_ordinals) {
  while (!lost_ids_.empty() && lost_ids_.front().first <= lost_ordinals) lost_ids_.pop_front();
}

void StepQueue::FailAll(const absl::Status& error, std::vector<Task>& calls) {
  for (ErrorWaiter& join : joins_)
    calls.push_back([join = std::move(join), error] { join.raise(error); });
  for (ErrorWaiter& waiter : error_waiters_)
    calls.push_back([waiter = std::move(waiter), error] { waiter.raise(error); });
  for (WaitingSchedule& waiting : waiting_)
    calls.push_back([waiting = std::move(waiting), error] { waiting.accepted(error); });
  for (const auto& run : runs_)
    calls.push_back([run, done = std::move(run->done), error] { done(error); });
  std::vector<std::shared_ptr<Step>> steps(queue_.begin(), queue_.end());
  for (const auto& [id, step] : open_) steps.push_back(step);
  for (const auto& step : steps) {
    if (std::exchange(step->state, Step::State::kClosed) == Step::State::kClosed) continue;
    calls.push_back([step, done = std::move(step->result), error] {
      if (done) done(error);
    });
  }
  joins_.clear(), error_waiters_.clear(), waiting_.clear(), runs_.clear(), queue_.clear(),
      open_.clear();
  in_flight_ = 0;
}

// ---- replay ----

// The restored state has no trace of the open steps, even if some ps had applied them. Open steps
// wait until the replay is complete.
void StepQueue::Rewind() {
  in_flight_ = 0;
  samples_.OnRewind();
  queue_.erase(std::remove_if(queue_.begin(), queue_.end(),
                              [](const auto& step) { return step->id != EntryId(); }),
               queue_.end());
  for (auto open = open_.begin(); open != open_.end();) {
    Step& step = *open->second;
    if (step.replayed) {
      step.state = Step::State::kClosed;
      open = open_.erase(open);
      continue;
    }
    step.state = Step::State::kQueued;
    step.worker = -1;
    step.waits_since = clock_.Elapsed();
    step.applied.clear();
    step.forgiven = step.attempt;
    step.returned_by.clear();
    step.not_before = absl::ZeroDuration();
    ++open;
  }
}

void StepQueue::EndReplayed(Step& step) {
  step.state = Step::State::kClosed;
  open_.erase(step.id);
  last_progress_ = clock_.Elapsed();
}

void StepQueue::Resume() {
  for (auto open = open_.rbegin(); open != open_.rend(); ++open) queue_.push_front(open->second);
  if (std::exchange(cancelling_, false)) StartCancelling();
}

// Time in which the job did not run does not count: rows that no step could name are not old.
void StepQueue::NoteTime() {
  tick_ =
      first_tick_ + static_cast<uint32_t>(absl::ToInt64Minutes(clock_.Elapsed() - ticks_since_));
}

void StepQueue::RestoreState(const Totals& totals) {
  totals_ = totals;
  tick_ = first_tick_ = totals.tick;
  ticks_since_ = clock_.Elapsed();
  restored_steps_ = totals.finished_steps;
}

// ---- the redo log ----

void StepQueue::LogOpen(const Step& step) {
  if (step.request.read_only) return;
  log_.OpenStep(step.id,
                RedoLog::BytesOf(step.request.function, step.request.args, step.leases.size()));
  host_.OnLogGrown();
}

// Moves the step's args into the log, so nothing may need them afterwards.
void StepQueue::LogFinished(Step& step) {
  if (step.request.read_only || !log_.kept()) return;
  RedoLog::Step logged{
      step.request.function, std::move(step.request.args), step.leases, {},
      *step.ordinal,         step.learning_rate_scale,     step.tick,   step.worker};
  int64_t new_bytes = 0;
  logged.iterators = passes_.Logged(step, new_bytes);
  log_.Charge(step.id, new_bytes);
  log_.FinishStep(step.id, std::move(logged), step.begun);
  // The descriptions of the step's iterators may have filled the log.
  host_.OnLogGrown();
}

// ---- state ----

int64_t StepQueue::NumLeased() const {
  int64_t positions = 0;
  for (const auto& [id, step] : open_) {
    for (const InputLease& lease : step->leases) positions += lease.count;
  }
  return positions;
}

std::vector<InputLease> StepQueue::OpenLeases() const {
  std::vector<InputLease> leases;
  for (const auto& [id, step] : open_)
    leases.insert(leases.end(), step->leases.begin(), step->leases.end());
  return leases;
}

// Steps are queued behind each other, so only the first one in the queue may be the oldest.
std::optional<absl::Duration> StepQueue::oldest_since() const {
  std::optional<absl::Duration> oldest;
  const auto note = [&oldest](const Step& step) {
    oldest = std::min(oldest.value_or(step.queued_at), step.queued_at);
  };
  for (const auto& [id, step] : open_) note(*step);
  if (!queue_.empty()) note(*queue_.front());
  return oldest;
}

bool StepQueue::IsHalfApplied() const {
  return std::any_of(open_.begin(), open_.end(),
                     [](const auto& open) { return !open.second->applied.empty(); });
}

int64_t StepQueue::NumClosedOrdinals() const {
  const auto is_open = [](const auto& open) {
    return open.second->ordinal && !open.second->replayed;
  };
  return totals_.next_ordinal - std::count_if(open_.begin(), open_.end(), is_open);
}

std::map<std::string, int64_t> StepQueue::Sizes() const {
  const auto size = [](const auto& structure) { return static_cast<int64_t>(structure.size()); };
  return {
      {"joins", size(joins_)},
      {"numbers of lost ids", size(lost_ids_)},
      {"open steps", size(open_)},
      {"queued steps", size(queue_)},
      {"waiters", size(error_waiters_)},
      {"runs", size(runs_)},
      {"waiting schedules", size(waiting_)},
  };
}

}  // namespace divvy
