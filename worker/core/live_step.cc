// WorkerCore: one step, from dispatch to report.
//
// 1. StartStep: the transaction is opened, what the function read the last time is pulled, the
//    function begins. PullAhead: so are those of the next steps, where PullOptions say so, and
//    dropped again with whatever changes what they may read. CopyAhead: what is pulled for the very
//    next step goes to where that step will compute.
// 2. OnFunctionDone: failed or cancelled: reported, nothing of it is left. Else: the record of its
//    writes, each of which has been checked when staged.
// 3. CommitIfSlotsExist: an optimizer new to a variable needs its slots first (NeedSlots, answered
//    by a LayoutUpdate).
// 4. BeginCommit: the commit is planned, without the core's lock where that takes long; a layout
//    that has changed meanwhile wants another plan. Then the step is at the gate; while held it
//    waits there, with its plan. Then all commits at once. Each is sent again until its ps answers,
//    or the session ends. From here the step is not live but committing. The next step may begin
//    now (MayBegin); when its function ends, it waits until this step is reported.
// 5. EndCommitIfAnswered: the report. Then the end of the next step's function is handled, if it is
//    over, or the next step begins.
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

// The next step may begin while this one commits. It may miss the adds of this one, as it may miss
// those of other workers. It must not miss an assign, and it must not assign a variable of which it
// has missed an add. What a function assigns is known from its last runs, so its first run waits;
// CheckAssigned sees what those runs did not show. A row that was read without the writes of this
// step must not be kept for the steps that follow.
bool WorkerCore::MayBegin(const Dispatch& next) const {
  if (!session_->committing) return true;
  if (options_.pulls.pipeline_depth == 1 || !next.ordinal || session_->rows != nullptr)
    return false;
  const std::vector<StagedWrite>& writes = session_->committing->record.writes;
  if (!RuleHolds(Rule::kAssignsAreNotMissed)) return true;
  return Assigned(writes).empty() &&
         read_sets_.AssignsNoneOf(next.function, session_->layout->version(), Written(writes));
}

// The same on every attempt, another for every step, also for those that have no ordinal.
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
                                     {},
                                     options_.at_once_bytes};
  if (!options.read_only) options.rows = session_->rows;
  options.on_session_over = [weak = weak_from_this(),
                             session = std::weak_ptr<Session>(session_)](const absl::Status& why) {
    if (const auto core = weak.lock()) core->OnSessionOver(session, why);
  };
  return std::make_shared<WorkerTransaction>(std::move(options), executor_, clock_);
}

void WorkerCore::StartStep(QueuedStep next) {
  Dispatch dispatch = std::move(next.dispatch);
  if (session_->rows != nullptr) session_->rows->BeginStep();
  const std::weak_ptr<WorkerCore> weak = weak_from_this();
  const std::weak_ptr<Session> session = session_;
  const auto transaction = next.ahead != nullptr ? next.ahead : OpenTransaction(dispatch);
  StepCall call{dispatch.step, dispatch.attempt, dispatch.ordinal, dispatch.function,
                dispatch.args, dispatch.inputs,  SeedOf(dispatch), dispatch.learning_rate_scale};
  outbox_.Add([this, weak, session, transaction, call = std::move(call),
               expected = read_sets_.Predict(dispatch.function, session_->layout->version())] {
    transaction->Prefetch(expected);
    runner_.Start(call, transaction, [weak, session, transaction, step = call.step](StepEnd end) {
      // Without the core's lock: pulls still under way are answered.
      StepRecord record = transaction->Finish();
      if (const auto core = weak.lock())
        core->OnFunctionDone(session, step, std::move(record), std::move(end));
    });
  });
  session_->live.emplace(std::move(dispatch), transaction, std::move(next.missed));
  session_->live->reads_ahead = next.reads_ahead;
  if (session_->committing)
    session_->live->missed.merge(Written(session_->committing->record.writes));
}

// Read-only steps are left out: what an evaluation reads is as new as can be.
void WorkerCore::PullAhead() {
  const bool both = session_->live && session_->committing && RuleHolds(Rule::kDepthCountsCommits);
  const int begun = both ? 2 : session_->live || session_->committing ? 1 : 0;
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

// Of the step that begins next alone: so a GPU has no more than one step's values beside those that
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

// Its positions are its own whatever happens to variables: only its end, or a cancel, takes back
// what is said here.
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

// Nobody else holds the transaction for long: with it goes whatever it would have sent again. Its
// values are released without the core's lock.
void WorkerCore::DropPrefetched(QueuedStep& step) {
  if (step.ahead != nullptr) outbox_.Add([dropped = std::exchange(step.ahead, nullptr)] {});
  step.copies_ahead = false;
  step.missed.clear();
}

void WorkerCore::DropPrefetched() {
  for (QueuedStep& step : session_->queue) DropPrefetched(step);
}

void WorkerCore::ForgetReads() {
  DropPrefetched();
  if (session_->rows != nullptr) outbox_.Add([forgotten = session_->rows->Clear()] {});
}

// Of a variable that steps assign no rows are kept: what another worker or the program has assigned
// would be undone by a step that reads a row from before and assigns in turn. Other rows that the
// step writes are forgotten as its commit is planned.
void WorkerCore::KeepNoRowsOfAssigned(const std::vector<StagedWrite>& writes) {
  if (session_->rows == nullptr || !RuleHolds(Rule::kForgetWhatItWrites)) return;
  for (const StagedWrite& write : writes) {
    if (!Assigns(write)) continue;
    assigned_rows_.insert(write.variable);
    session_->rows->NeverKeep(session_->layout->Find(write.variable)->id);
  }
}

// A value that replaces another may have been made from it: who then reads the older one and
// assigns in turn would lose what was made. Adds and gradients are not lost so, unless the step
// that has missed them assigns (CheckAssigned).
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

// A function that runs is asked to stop, and reported when it has; one that waits for the step
// before it, for slots, for its plan or at the gate is over already. A commit takes its course.
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
  live->record = std::move(record);
  live->ended = std::move(end.ended);
  live->result = std::move(end.result);
  // A step that cannot commit in any case does not wait for the one that does. Above all a lost GPU
  // is told at once, or more steps would be sent to it.
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

// No step can compute in this process any more. That it drains is said before the report, or the
// coordinator would send the step back here.
void WorkerCore::LoseDevice(absl::Status why) {
  if (RuleHolds(Rule::kLostDeviceEndsItsWorker)) {
    BeginDrain(exit_codes::kTryAgain, std::string(why.message()));
    draining_->can_compute = false;
    std::deque<QueuedStep> queue;
    queue.swap(session_->queue);
    // Each goes to the head of the coordinator's queue.
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

// A function that assigns a variable for the first time may have read it too early: what this
// worker has added since would be lost. Nothing has been sent yet. From now on the variable is
// pulled when the step begins, and the step begins when what writes to it has been committed.
absl::Status WorkerCore::CheckAssigned(const std::set<std::string>& assigned) const {
  for (const std::string& variable : session_->live->missed) {
    if (assigned.count(variable) == 0) continue;
    return absl::AbortedError(absl::StrCat("\"", session_->live->dispatch.function,
                                           "\" assigned variable \"", variable,
                                           "\" for the first time, and may have read it without "
                                           "what an earlier step of the same worker wrote to it "
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
  // asked for already: another change of the layout came first
  if (live.state == WorkerSnapshot::Step::kNeedsSlots) return;
  live.state = WorkerSnapshot::Step::kNeedsSlots;
  Send(NeedSlots{live.dispatch.step, std::move(missing)});
}

// ---- 4 ------------------------------------------------------------------------------------------

// For the layout as it is now.
void WorkerCore::PlanLiveCommit() {
  LiveStep& live = *session_->live;
  auto work = std::make_shared<const CommitWork>(CommitWork{
      session_->layout, session_->links, live.record.writes, live.dispatch.ordinal.value_or(0),
      live.dispatch.learning_rate_scale, options_.check_numerics,
      RuleHolds(Rule::kForgetWhatItWrites) ? session_->rows : nullptr});
  if (PlanningBytes(work->writes) < options_.at_once_bytes) {
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
  // cancelled, or another attempt: this one's plan is of no use
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
  KeepNoRowsOfAssigned(live.record.writes);
  std::map<int, std::vector<CommitPart>> parts = *std::move(live.plan->parts);
  for (auto& [ps, part] : parts) {
    CommitRequest request{
        session_->links->FenceFor(ps),  live.dispatch.step, live.dispatch.attempt, EntryKind::kStep,
        static_cast<int>(parts.size()), std::move(part),    live.dispatch.inputs};
    const uint64_t seed = MixSeeds(options_.seed, MixSeeds(live.dispatch.step.value(), ps));
    live.commits.emplace(ps,
                         Commit{std::move(request), Backoff(seed), clock_.Elapsed(), std::nullopt});
  }
  live.state = WorkerSnapshot::Step::kCommitting;
  session_->committing = std::exchange(session_->live, std::nullopt);
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

// How many commits landed between this step's read and its write: those of others, and those of
// this worker's steps that were not there when it read.
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
  if (outcome == StepOutcome::kOk) report.value = *std::move(step.result);
  for (const auto& [ps, commit] : step.commits) {
    if (commit.answer && commit.answer->ok()) report.participants.push_back(ps);
  }
  if (!step.commits.empty()) AgePrefetched(step);
  if (step.reads_ahead) ForgetData(step.dispatch);
  // Its values go without the core's lock.
  outbox_.Add([released = std::make_shared<const LiveStep>(std::move(step))] {});
  ++reported_;
  Send(std::move(report));
  // Behind the report: whoever has it knows of every step that committed before.
  AnswerHold();
  // It commits nothing more (EndIfDrained).
  if (draining_ && Unheard()) return;
  if (session_->live && session_->live->state == WorkerSnapshot::Step::kBehind) FunctionEnded();
  StartNext();
}

void WorkerCore::AnswerHold() {
  if (!session_->hold || session_->hold_answered) return;
  if (session_->committing && RuleHolds(Rule::kHeldWhenNothingCommits)) return;
  session_->hold_answered = true;
  Send(Held{*session_->hold});
}

}  // namespace divvy
