// WorkerCore: one step, from dispatch to report.
//
// 1. StartStep opens the transaction, pulls the variables that the function read the last time, and
//    starts the function. If PullOptions say so, PullAhead prefetches the variables of the next
//    steps, and CopyAhead copies those of the very next step to its GPUs. Every event that changes
//    the values that these steps may read drops the prefetched ones.
// 2. OnFunctionDone: a failed or cancelled step is reported, and leaves nothing. A step that has
//    succeeded leaves the record of its writes. Each write was checked when it was staged.
// 3. CommitIfSlotsExist: if an optimizer is new to a variable, the step first needs its slots
//    (NeedSlots, answered by a LayoutUpdate).
// 4. BeginCommit plans the commit, without the core's lock if planning takes long. If the layout
//    has changed meanwhile, the commit is planned again. While the worker is held, the step then
//    waits at the gate, with its plan. Then all commits are sent at once. Each is sent again until
//    its ps answers or the session ends. From here on the step is not live but committing. The next
//    step may begin now (MayBegin); when its function has returned, it waits until this step has
//    been reported.
// 5. EndCommitIfAnswered sends the report. Then the next step continues if its function has
//    returned, or else the next step begins.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/breakable.h"
#include "base/exit_codes.h"
#include "base/failpoint.h"
#include "base/random.h"
#include "protocol/error.h"
#include "variables/transfer_plan.h"
#include "worker/core/planned_commit.h"
#include "worker/core/ps_answer.h"
#include "worker/core/worker_core.h"

namespace divvy {
namespace {

// The elements of gradients that are read for histograms under the core's lock: some microseconds.
constexpr int64_t kSampledAtOnce = 4096;

absl::Status CheckValue(const Nest& value, int64_t max_bytes) {
  if (!value.status().ok()) return value.status();
  const int64_t bytes = value.size_bytes();
  if (bytes <= max_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the step returned ", bytes,
                                                 " bytes, more than the limit of ", max_bytes,
                                                 ": keep large results in variables"));
}

std::set<std::string> Written(absl::Span<const StagedWrite> writes) {
  std::set<std::string> written;
  for (const StagedWrite& write : writes) written.insert(write.variable);
  return written;
}

// The variables whose values the writes replace, in part or whole.
std::set<std::string> Assigned(absl::Span<const StagedWrite> writes) {
  std::set<std::string> assigned;
  for (const StagedWrite& write : writes) {
    if (Assigns(write)) assigned.insert(write.variable);
  }
  return assigned;
}

}  // namespace

// ---- 1 ------------------------------------------------------------------------------------------

void WorkerCore::StartNext() {
  if (session_ == nullptr || Silent() || shutdown_code_) return;
  if (!session_->live && !session_->queue.empty() && MayBegin(session_->queue.front().dispatch)) {
    QueuedStep next = std::move(session_->queue.front());
    session_->queue.pop_front();
    StartStep(std::move(next));
  }
  PullAhead();
}

// Whether the next step may begin while the previous one commits. The next step may miss the
// additions of the previous one, as it may miss those of other workers. It must not miss an assign,
// and it must not assign a variable of which it has missed an addition. The variables that a
// function assigns are known from its last runs, so its first run waits. CheckAssigned catches an
// assign that the last runs did not show.
bool WorkerCore::MayBegin(const Dispatch& next) const {
  if (!session_->committing) return true;
  if (session_->begun_since + 1 >= options_.pulls.pipeline_depth || !next.ordinal) return false;
  const std::vector<StagedWrite>& writes = session_->committing->record.writes;
  if (!RuleHolds(Rule::kAssignsAreNotMissed)) return true;
  return Assigned(writes).empty() &&
         read_sets_.AssignsNoneOf(next.function, session_->layout->version(), Written(writes));
}

// The seed is the same on every attempt and differs between steps. A step without an ordinal takes
// it from its entry id.
uint64_t WorkerCore::SeedOf(const Dispatch& dispatch) const {
  return MixSeeds(session_->job_seed, dispatch.ordinal ? MixSeeds(1, *dispatch.ordinal)
                                                       : MixSeeds(2, dispatch.step.value()));
}

std::shared_ptr<WorkerTransaction> WorkerCore::OpenTransaction(const Dispatch& dispatch) {
  WorkerTransaction::Options options{session_->links,
                                     session_->layout,
                                     !dispatch.ordinal,
                                     options_.check_numerics,
                                     MixSeeds(options_.seed, dispatch.step.value()),
                                     {},
                                     options_.at_once_bytes,
                                     options_.metrics,
                                     dispatch.step};
  options.on_session_over = [weak = weak_from_this(),
                             session = std::weak_ptr<Session>(session_)](const absl::Status& why) {
    if (const auto core = weak.lock()) core->OnSessionOver(session, why);
  };
  return std::make_shared<WorkerTransaction>(std::move(options), executor_, clock_);
}

void WorkerCore::StartStep(QueuedStep next) {
  Dispatch dispatch = std::move(next.dispatch);
  const std::weak_ptr<WorkerCore> weak = weak_from_this();
  const std::weak_ptr<Session> session = session_;
  const auto transaction = next.ahead != nullptr ? next.ahead : OpenTransaction(dispatch);
  StepCall call{dispatch.step, dispatch.attempt, dispatch.ordinal, dispatch.function,
                dispatch.args, dispatch.inputs,  SeedOf(dispatch), dispatch.learning_rate_scale};
  outbox_.Add([this, weak, session, transaction, call = std::move(call),
               expected = read_sets_.Predict(dispatch.function, session_->layout->version())] {
    transaction->Prefetch(expected);
    runner_.Start(call, transaction, [weak, session, transaction, step = call.step](StepEnd end) {
      // Called without the core's lock, because it answers pulls that are in flight.
      StepRecord record = transaction->Finish();
      if (const auto core = weak.lock())
        core->OnFunctionDone(session, step, std::move(record), std::move(end));
    });
  });
  session_->live.emplace(std::move(dispatch), transaction, std::move(next.missed));
  session_->live->reads_ahead = next.reads_ahead;
  session_->live->arrived = next.arrived;
  session_->live->began = clock_.Elapsed();
  if (!session_->committing) return;
  ++session_->begun_since;
  session_->live->missed.merge(Written(session_->committing->record.writes));
}

// Read-only steps are not prefetched, so that an evaluation reads the newest values.
void WorkerCore::PullAhead() {
  int begun = session_->live || session_->committing ? 1 : 0;
  // All steps that begin after the committing one may miss its additions.
  if (session_->committing && RuleHolds(Rule::kDepthCountsCommits))
    begun = 1 + session_->begun_since;
  if (begun == 0) return;
  const int steps =
      std::min(static_cast<int>(session_->queue.size()), options_.pulls.pipeline_depth - begun);
  for (int i = 0; i < steps; ++i) {
    QueuedStep& step = session_->queue[i];
    if (!step.dispatch.ordinal) continue;
    if (!step.reads_ahead) ReadAhead(step);
    if (step.ahead == nullptr) PullAhead(step);
    if (i == 0) CopyAhead(step);
  }
}

void WorkerCore::PullAhead(QueuedStep& step) {
  step.pulled = read_sets_.PredictAhead(step.dispatch.function, session_->layout->version());
  if (step.pulled.empty()) return;
  step.ahead = OpenTransaction(step.dispatch);
  outbox_.Add([transaction = step.ahead, expected = step.pulled] {
    transaction->Prefetch(expected, /*ahead=*/true);
  });
}

// Only for the step that begins next, so that a GPU holds at most one more step's values than those
// it computes with.
void WorkerCore::CopyAhead(QueuedStep& step) {
  if (step.ahead == nullptr || std::exchange(step.copies_ahead, true)) return;
  outbox_.Add(
      [weak = weak_from_this(), transaction = step.ahead, function = step.dispatch.function] {
        transaction->TellAhead([weak, function](const std::vector<WholeValue>& values) {
          if (const auto core = weak.lock()) core->runner_.CopyAhead(function, values);
        });
      });
}

// A step keeps its positions whatever happens to variables. So only a cancel, or the end of the
// step or of its session, drops prefetched data.
void WorkerCore::ReadAhead(QueuedStep& step) {
  step.reads_ahead = true;
  outbox_.Add([this, inputs = step.dispatch.inputs] {
    for (const InputLease& positions : inputs) inputs_.ReadAhead(positions);
  });
}

void WorkerCore::ForgetData(const Dispatch& dispatch) {
  outbox_.Add([this, inputs = dispatch.inputs] {
    for (const InputLease& positions : inputs) inputs_.ForgetAhead(positions);
  });
}

// Nobody else holds the transaction for long, so its pending retries end with it. Its values are
// freed without the core's lock.
void WorkerCore::DropPrefetched(QueuedStep& step) {
  if (step.ahead != nullptr) outbox_.Add([dropped = std::exchange(step.ahead, nullptr)] {});
  step.copies_ahead = false;
  step.missed.clear();
}

void WorkerCore::DropPrefetched() {
  for (QueuedStep& step : session_->queue) DropPrefetched(step);
}

void WorkerCore::ForgetReads() { DropPrefetched(); }

// An assigned value may have been made from the old value. A step that reads the older value and
// then assigns would lose the assign, so its prefetched values are dropped. Additions and gradients
// are lost only if the step that missed them assigns; CheckAssigned handles that.
void WorkerCore::AgePrefetched(const LiveStep& ended) {
  const std::set<std::string> assigned = Assigned(ended.record.writes);
  for (QueuedStep& step : session_->queue) {
    if (step.ahead == nullptr) continue;
    const auto pulled = [&](const std::string& variable) {
      return std::count(step.pulled.begin(), step.pulled.end(), variable) > 0;
    };
    if (std::any_of(assigned.begin(), assigned.end(), pulled)) {
      DropPrefetched(step);
      continue;
    }
    for (const StagedWrite& write : ended.record.writes) {
      if (pulled(write.variable)) step.missed.insert(write.variable);
    }
  }
}

// ---- 2 ------------------------------------------------------------------------------------------

WorkerCore::LiveStep* WorkerCore::Live(const std::weak_ptr<Session>& session, EntryId step) {
  if (session_ == nullptr || session.lock() != session_ || !session_->live ||
      session_->live->dispatch.step != step)
    return nullptr;
  return &*session_->live;
}

WorkerCore::LiveStep* WorkerCore::Committing(const std::weak_ptr<Session>& session, EntryId step) {
  if (session_ == nullptr || session.lock() != session_ || !session_->committing ||
      session_->committing->dispatch.step != step)
    return nullptr;
  return &*session_->committing;
}

// A running function is asked to stop, and its step is reported when it has returned. If the step
// waits for the previous step, for slots, for its plan or at the gate, its function has returned,
// so it is reported at once. A step that commits is not live and is not cancelled.
void WorkerCore::CancelLive() {
  LiveStep& live = *session_->live;
  if (live.cancelled) return;
  live.cancelled = true;
  if (live.state != WorkerSnapshot::Step::kRunning)
    return ReportLive(StepOutcome::kCancelled, absl::OkStatus());
  outbox_.Add([transaction = live.transaction] { transaction->Cancel(); });
}

void WorkerCore::OnFunctionDone(const std::weak_ptr<Session>& session, EntryId step,
                                StepRecord record, StepEnd end) {
  CoreLock lock(mu_, outbox_);
  LiveStep* const live = Live(session, step);
  if (live == nullptr || live->state != WorkerSnapshot::Step::kRunning) return;
  HitFailpoint(Failpoint::kStepComputed);
  live->computed = clock_.Elapsed();
  live->record = std::move(record);
  live->ended = std::move(end.ended);
  live->result = std::move(end.result);
  // A step that will not commit does not wait for the committing step. Above all a lost GPU is
  // reported at once, or the coordinator would send more steps to it.
  const bool sends_nothing =
      live->cancelled || ReasonOf(live->result.status()) == Reason::kDeviceLost;
  if (session_->committing && !sends_nothing) {
    live->state = WorkerSnapshot::Step::kBehind;
  } else {
    FunctionEnded();
  }
  EndIfDrained();
}

void WorkerCore::FunctionEnded() {
  const LiveStep& live = *session_->live;
  if (live.cancelled || shutdown_code_)
    return ReportLive(StepOutcome::kCancelled, absl::OkStatus());
  live.result.ok() ? FunctionSucceeded() : FunctionFailed(live.result.status());
}

void WorkerCore::FunctionFailed(absl::Status status) {
  switch (ReasonOf(status)) {
    case Reason::kEndOfData: return ReportLive(StepOutcome::kEndOfData, std::move(status));
    case Reason::kInputAborted: return ReportLive(StepOutcome::kSystem, std::move(status));
    case Reason::kDeviceLost:
      if (RuleHolds(Rule::kLostDeviceFailsNoStep)) return LoseDevice(std::move(status));
      [[fallthrough]];
    default: return ReportLive(StepOutcome::kFailed, MarkUser(status));
  }
}

// No step can compute in this process any more. The worker announces its drain before the report;
// otherwise the coordinator would send the step back here.
void WorkerCore::LoseDevice(absl::Status why) {
  if (RuleHolds(Rule::kLostDeviceEndsItsWorker)) {
    BeginDrain(exit_codes::kTryAgain, std::string(why.message()));
    draining_->can_compute = false;
    std::deque<QueuedStep> queue;
    queue.swap(session_->queue);
    // Each step goes to the head of the coordinator's queue, so the last one goes first.
    for (auto step = queue.rbegin(); step != queue.rend(); ++step) GiveBack(std::move(*step));
  }
  ReportLive(StepOutcome::kSystem, std::move(why));
}

void WorkerCore::FunctionSucceeded() {
  LiveStep& live = *session_->live;
  if (absl::Status refused = CheckValue(*live.result, options_.max_value_bytes); !refused.ok())
    return ReportLive(StepOutcome::kFailed, MarkUser(refused));
  const std::set<std::string> assigned = Assigned(live.record.writes);
  read_sets_.Learn(live.dispatch.function, live.transaction->layout()->version(),
                   std::move(live.record.read_whole), assigned);
  if (absl::Status too_old = CheckAssigned(assigned); !too_old.ok())
    return ReportLive(StepOutcome::kSystem, std::move(too_old));
  CommitIfSlotsExist();
}

// A function that assigns a variable for the first time may have read the variable too early. Its
// assign would undo additions that this worker has made since. Nothing has been sent yet, so the
// step is run again. From now on, steps of the function wait for the commits that write to the
// variable, and pull it when they begin.
absl::Status WorkerCore::CheckAssigned(const std::set<std::string>& assigned) const {
  for (const std::string& variable : session_->live->missed) {
    if (assigned.count(variable) == 0) continue;
    return absl::AbortedError(absl::StrCat("\"", session_->live->dispatch.function,
                                           "\" assigned variable \"", variable,
                                           "\" for the first time, and may have read it before an "
                                           "earlier step of the same worker wrote to it "
                                           "(--pipeline_depth): the step is run again"));
  }
  return absl::OkStatus();
}

// ---- 3 ------------------------------------------------------------------------------------------

void WorkerCore::CommitIfSlotsExist() {
  LiveStep& live = *session_->live;
  std::vector<std::pair<std::string, Optimizer>> missing =
      MissingSlots(*session_->layout, live.record.writes);
  if (missing.empty()) return BeginCommit();
  // The slots have been asked for already, and another change of the layout arrived first.
  if (live.state == WorkerSnapshot::Step::kNeedsSlots) return;
  live.state = WorkerSnapshot::Step::kNeedsSlots;
  Send(NeedSlots{live.dispatch.step, std::move(missing)});
}

// ---- 4 ------------------------------------------------------------------------------------------

// Plans for the current layout.
void WorkerCore::PlanLiveCommit() {
  LiveStep& live = *session_->live;
  auto work = std::make_shared<const CommitWork>(CommitWork{
      session_->layout, session_->links, live.record.writes, live.dispatch.ordinal.value_or(0),
      live.dispatch.learning_rate_scale, options_.check_numerics, live.dispatch.want_gradients});
  const bool is_small = PlanningBytes(*work->layout, work->writes) < options_.at_once_bytes;
  if (is_small && (!work->want_gradients || SampledElements(work->writes) <= kSampledAtOnce)) {
    live.plan = PlanCommit(*work);
    return BeginCommit();
  }
  live.state = WorkerSnapshot::Step::kPlanning;
  live.planning = work;
  outbox_.Add([this, weak = weak_from_this(), session = std::weak_ptr<Session>(session_),
               step = live.dispatch.step, work] {
    PlanCommitOn(executor_, work, [weak, session, step, work = work.get()](PlannedCommit plan) {
      if (const auto core = weak.lock()) core->OnPlanned(session, step, work, std::move(plan));
    });
  });
}

void WorkerCore::OnPlanned(const std::weak_ptr<Session>& session, EntryId step,
                           const CommitWork* work, PlannedCommit plan) {
  CoreLock lock(mu_, outbox_);
  LiveStep* const live = Live(session, step);
  // The step was cancelled, or another attempt runs: this plan is useless.
  if (live == nullptr || live->planning.get() != work) return;
  live->planning = nullptr;
  live->plan = std::move(plan);
  CommitIfSlotsExist();
  EndIfDrained();
}

void WorkerCore::BeginCommit() {
  LiveStep& live = *session_->live;
  if (!live.plan || !live.plan->IsFor(*session_->layout)) return PlanLiveCommit();
  if (!live.plan->parts.ok()) return ReportLive(StepOutcome::kFailed, live.plan->parts.status());
  if (live.plan->parts->empty()) return ReportLive(StepOutcome::kOk, absl::OkStatus());
  if (session_->hold && RuleHolds(Rule::kHoldBeforeSnapshot)) {
    live.state = WorkerSnapshot::Step::kHeld;
    return HitFailpoint(Failpoint::kStepHeld);
  }
  std::map<int, std::vector<CommitPart>> parts = *std::move(live.plan->parts);
  for (auto& [ps, part] : parts) {
    CommitRequest request{session_->links->FenceFor(ps),  live.dispatch.step,
                          live.dispatch.attempt,          EntryKind::kStep,
                          static_cast<int>(parts.size()), std::move(part),
                          live.dispatch.inputs,           live.dispatch.tick};
    const uint64_t seed = MixSeeds(options_.seed, MixSeeds(live.dispatch.step.value(), ps));
    live.commits.emplace(ps,
                         Commit{std::move(request), Backoff(seed), clock_.Elapsed(), std::nullopt});
  }
  live.state = WorkerSnapshot::Step::kCommitting;
  session_->committing = std::exchange(session_->live, std::nullopt);
  session_->begun_since = 0;
  for (const auto& [ps, commit] : session_->committing->commits) SendCommit(ps);
  StartNext();
}

void WorkerCore::SendCommit(int ps) {
  const LiveStep& committing = *session_->committing;
  outbox_.Add([weak = weak_from_this(), session = std::weak_ptr<Session>(session_),
               step = committing.dispatch.step, ps, client = session_->links->ps.at(ps).client,
               request = committing.commits.at(ps).request]() mutable {
    client->Call(std::move(request), [weak, session, step, ps](absl::StatusOr<CommitReply> reply) {
      if (const auto core = weak.lock()) core->OnCommitReply(session, step, ps, std::move(reply));
    });
  });
}

void WorkerCore::SendCommitAgain(const std::weak_ptr<Session>& session, EntryId step, int ps) {
  CoreLock lock(mu_, outbox_);
  const LiveStep* const committing = Committing(session, step);
  if (committing != nullptr && !committing->commits.at(ps).answer) SendCommit(ps);
}

void WorkerCore::OnCommitReply(const std::weak_ptr<Session>& session, EntryId step, int ps,
                               absl::StatusOr<CommitReply> reply) {
  CoreLock lock(mu_, outbox_);
  LiveStep* const committing = Committing(session, step);
  if (committing == nullptr || committing->commits.at(ps).answer) return;
  Commit& commit = committing->commits.at(ps);
  switch (JudgePsAnswer(reply.status())) {
    case PsAnswer::kDone: MeasureStaleness(commit, *reply); [[fallthrough]];
    case PsAnswer::kRefused:
      commit.answer = reply.status();
      commit.took = clock_.Elapsed() - commit.since;
      if (reply.ok()) commit.served = reply->served;
      if (options_.metrics != nullptr)
        options_.metrics->push_seconds.Observe(absl::ToDoubleSeconds(commit.took));
      HitFailpoint(Failpoint::kStepFirstCommitDone);
      break;
    case PsAnswer::kSessionOver: SessionOver(reply.status()); break;
    case PsAnswer::kSendAgain:
      outbox_.Add([this, weak = weak_from_this(), session, step, ps, wait = commit.backoff.Next()] {
        executor_.PostAfter(wait, [weak, session, step, ps] {
          if (const auto core = weak.lock()) core->SendCommitAgain(session, step, ps);
        });
      });
      break;
  }
  if (session_ != nullptr) EndCommitIfAnswered();
  EndIfDrained();
}

// Staleness: the number of commits that reached the shard between this step's read and its write.
// They are commits of other workers, and commits of earlier steps of this worker that the read
// missed.
void WorkerCore::MeasureStaleness(const Commit& commit, const CommitReply& reply) {
  LiveStep& step = *session_->committing;
  for (size_t i = 0; i < reply.versions.size() && i < commit.request.parts.size(); ++i) {
    const auto pulled = step.record.pulled.find(commit.request.parts[i].shard);
    if (pulled == step.record.pulled.end() || reply.versions[i] <= pulled->second) continue;
    step.staleness = std::max(step.staleness, reply.versions[i] - 1 - pulled->second);
  }
}

// ---- 5 ------------------------------------------------------------------------------------------

void WorkerCore::EndCommitIfAnswered() {
  absl::Status refusal;
  for (const auto& [ps, commit] : session_->committing->commits) {
    if (!commit.answer) return;
    refusal.Update(*commit.answer);
  }
  HitFailpoint(Failpoint::kStepCommittedBeforeReport);
  const StepOutcome outcome = refusal.ok() ? StepOutcome::kOk : StepOutcome::kFailed;
  ReportStep(session_->committing, outcome, std::move(refusal));
}

// `ended` is the session's live step or its committing one.
void WorkerCore::ReportStep(std::optional<LiveStep>& ended, StepOutcome outcome,
                            absl::Status error) {
  LiveStep step = *std::exchange(ended, std::nullopt);
  Report report{step.dispatch.step, step.dispatch.attempt, outcome, Nest(), std::move(error), {},
                step.staleness,     std::move(step.ended)};
  if (outcome == StepOutcome::kOk) {
    report.value = *std::move(step.result);
    if (step.plan) report.gradients = std::move(step.plan->gradients);
  }
  report.took = std::max(clock_.Elapsed() - step.began, absl::Nanoseconds(1));
  for (const auto& [ps, commit] : step.commits) {
    if (commit.answer && commit.answer->ok()) report.participants.push_back(ps);
  }
  Measure(step, report);
  Trace(step, report);
  if (!step.commits.empty()) AgePrefetched(step);
  if (step.reads_ahead) ForgetData(step.dispatch);
  // The step's values are freed without the core's lock.
  outbox_.Add([released = std::make_shared<const LiveStep>(std::move(step))] {});
  ++reported_;
  Send(std::move(report));
  // Sent after the report, so that a coordinator that has received Held knows of every step that
  // committed before.
  AnswerHold();
  // The worker begins no more commits (EndIfDrained).
  if (draining_ && Unheard()) return;
  if (session_->live && session_->live->state == WorkerSnapshot::Step::kBehind) FunctionEnded();
  StartNext();
}

void WorkerCore::Measure(const LiveStep& step, const Report& report) const {
  if (options_.metrics == nullptr) return;
  const double seconds = absl::ToDoubleSeconds(report.took);
  options_.metrics->step_seconds.Observe(seconds);
  options_.metrics->recent_step_seconds.Add(seconds);
  if (!step.commits.empty())
    options_.metrics->staleness.Observe(static_cast<double>(step.staleness));
}

StepTrace WorkerCore::TraceOf(LiveStep& step) const {
  StepTrace trace;
  CallTimes& calls = step.record.calls;
  for (const auto& [ps, commit] : step.commits) {
    trace.committed = commit.since - step.arrived;
    calls.Add({/*commit=*/true, ps, commit.since, commit.took, commit.served,
               static_cast<uint32_t>(commit.backoff.tries())});
  }
  trace.began = std::max(step.began - step.arrived, absl::ZeroDuration());
  trace.computed = std::max(step.computed - step.arrived, trace.began);
  trace.reported = clock_.Elapsed() - step.arrived;
  trace.calls = calls.From(step.arrived);
  trace.left_out = calls.left_out();
  return trace;
}

void WorkerCore::Trace(LiveStep& step, Report& report) const {
  const Dispatch& dispatch = step.dispatch;
  const absl::Duration now = clock_.Elapsed();
  if (!dispatch.trace_over || now - step.arrived < *dispatch.trace_over) return;
  report.trace = TraceOf(step);
  if (options_.traces == nullptr) return;
  TracedStep run{dispatch.step,
                 dispatch.attempt,
                 dispatch.ordinal,
                 dispatch.function,
                 options_.index,
                 report.outcome,
                 now};
  run.total = report.trace->reported;
  run.parts = report.trace;
  options_.traces->Add(std::move(run), *dispatch.trace_over);
}

void WorkerCore::AnswerHold() {
  if (!session_->hold || session_->hold_answered) return;
  if (session_->committing && RuleHolds(Rule::kHeldWhenNothingCommits)) return;
  session_->hold_answered = true;
  Send(Held{*session_->hold});
}

}  // namespace divvy
