// The program's own writes, and where they stand among steps.
//
// A write beside open steps is exact: it comes after every step that finished before it was applied, and before every other, on all servers alike. So a replay
// can put it where it was (replay_order.h), and no step that the program saw finished is undone.
//
//   1. HOLDING    every worker is told to begin no commit. A step whose commit is under way is let finish, and is reported before its worker answers
//   2. HELD       all have answered: every entry is applied everywhere or nowhere. The writes that wait are applied
//   3. all are applied: the steps that are open have come after them, and are numbered so. Commits go on
//
// A worker that is lost in 1 gives the hold up, for its step may be half applied; so do 5 s. It is tried again when the step has been carried through.
//
// Where no step is open nobody is held. Steps that are scheduled meanwhile are dispatched when the write is applied, or one could commit before it on one
// server and after it on another. Writes that are called for after such a step begin behind it, so that neither steps nor writes wait for ever.
#include <algorithm>
#include <utility>

#include "base/breakable.h"
#include "coordinator/core/coordinator_core.h"

namespace divvy {
namespace {

constexpr uint64_t kHoldOfWrites = uint64_t{1} << 63;  // beside the numbers of checkpoints

}  // namespace

// A large write is cut into commits without the lock: workers are answered meanwhile. It is cut anew where the layout has changed by then.
void CoordinatorCore::Write(std::vector<StagedWrite> writes, StatusCallback done) {
  CommitPlan plan;
  std::shared_ptr<const Layout> planned_by;
  for (;;) {
    int64_t steps = 0;
    double scale = 1;
    {
      CoreLock lock(mu_, outbox_);
      if (!MayPlanWrite(writes, done)) return;
      if (planned_by == layout_plan_.layout()) return QueueWrite(std::move(plan), std::move(done));
      planned_by = layout_plan_.layout(), steps = steps_.totals().finished_steps, scale = steps_.learning_rate_scale();
    }
    plan = PlanCommits(*planned_by, writes, steps, scale);
  }
}

// False: it is answered, or begins anew when what it waits for is there.
bool CoordinatorCore::MayPlanWrite(const std::vector<StagedWrite>& writes, const StatusCallback& done) {
  if (abandoned_) return false;
  if (ResizeWaits()) {
    resizing_->deferred.push_back([self = shared_from_this(), writes, done] { self->WriteLater(writes, done); });
    return false;
  }
  absl::Status refused = job_error_;
  for (const StagedWrite& write : writes) {
    if (refused.ok()) refused = CheckWrite(*layout_plan_.layout(), write);
  }
  if (!refused.ok()) {
    outbox_.Add([done, refused] { done(refused); });
    return false;
  }
  ChooseEmpty();
  return !CreateMissingSlots(writes, done);
}

void CoordinatorCore::QueueWrite(CommitPlan plan, StatusCallback done) {
  absl::Status refused;
  auto write = std::make_shared<DirectWrite>();
  write->done = std::move(done);
  for (auto& [ps, parts] : plan) {
    refused.Update(CheckOptimizers(*layout_plan_.layout(), parts));
    refused.Update(CheckCommitSize(parts, ps, ps_[ps].max_commit_bytes));
    write->participants.push_back(ps);
    write->commits[ps].parts = std::move(parts);
  }
  if (!refused.ok() || write->commits.empty()) return outbox_.Add([done = std::move(write->done), refused] { done(refused); });
  waiting_writes_.push_back(std::move(write));
  Pump();
}

// As for a step: the slots that a gradient needs are created first, then the write begins anew. False: they are all there.
bool CoordinatorCore::CreateMissingSlots(const std::vector<StagedWrite>& writes, const StatusCallback& done) {
  const auto missing = MissingSlots(*layout_plan_.layout(), writes);
  if (missing.empty()) return false;
  const auto& [variable, optimizer] = missing.front();
  layout_changes_.CreateSlots(variable, optimizer, [self = shared_from_this(), writes, done](const absl::Status& created) {
    created.ok() ? self->WriteLater(writes, done) : done(created);
  });
  return true;
}

// For who is called by the outbox, which must not wait for a plan.
void CoordinatorCore::WriteLater(std::vector<StagedWrite> writes, StatusCallback done) {
  executor_.PostBlocking("write", [self = shared_from_this(), writes = std::move(writes), done = std::move(done)] { self->Write(writes, done); });
}

void CoordinatorCore::StartWrites() {
  const IdFor what = expected_values_ > 0 ? IdFor::kFirstValues : IdFor::kAny;
  while (!waiting_writes_.empty() && MayGiveId(what) && !checkpoint_maker_.holding() && !steps_wait_) {
    if (!MayWriteNow()) HoldForWrites();
    if (!MayWriteNow()) return;
    if (write_hold_ && write_hold_->held) --write_hold_->admits;
    std::shared_ptr<DirectWrite> write = std::move(waiting_writes_.front());
    waiting_writes_.pop_front();
    StartWrite(std::move(write));
  }
}

bool CoordinatorCore::MayWriteNow() const {
  if (write_hold_ && write_hold_->held) return write_hold_->admits > 0;
  return steps_.open().empty() || !RuleHolds(Rule::kWritesHoldCommits);
}

// Whether a step that is not open yet has to wait for the writes that began while none was.
bool CoordinatorCore::WaitsForWrites() {
  const bool waits = !open_writes_.empty() && !write_hold_ && RuleHolds(Rule::kStepsWaitForWrites);
  steps_wait_ |= waits;
  return waits;
}

// The steps that waited, and may begin, are open by now.
void CoordinatorCore::StartWritesBehindSteps() {
  if (!steps_wait_ || !open_writes_.empty()) return;
  steps_wait_ = false;
  StartWrites();
}

void CoordinatorCore::StartWrite(std::shared_ptr<DirectWrite> write) {
  write->id = GiveId();
  open_writes_.emplace(write->id, write);
  LogWrite(*write);
  SendCommits(write);
}

void CoordinatorCore::SendCommits(const std::shared_ptr<DirectWrite>& write) {
  for (auto& [ps, commit] : write->commits) {
    commit.entry = write->id;
    commit.attempt = 1;
    commit.kind = EntryKind::kWrite;
    commit.participants = static_cast<int>(write->participants.size());
  }
  for (const int ps : write->participants) SendWrite(ps_[ps], write);
}

void CoordinatorCore::SendWrite(Ps& ps, std::shared_ptr<DirectWrite> write) {
  const auto commit = write->commits.find(ps.index);
  if (commit == write->commits.end() || phase_ == Phase::kFailed) return;
  commit->second.fence = FenceFor(ps.incarnation);
  CallPs(ps, &ParameterClient::Commit, commit->second, &CoordinatorCore::OnWritten, write);
}

void CoordinatorCore::OnWritten(Ps& ps, const absl::StatusOr<CommitReply>& answer, std::shared_ptr<DirectWrite> write) {
  if (open_writes_.count(write->id) == 0) return;
  if (!answer.ok()) return RetryPs(ps, answer.status(), &CoordinatorCore::SendWrite, write);
  OnPsAnswer(ps);
  write->commits.erase(ps.index);
  if (!write->commits.empty()) return;
  open_writes_.erase(write->id);
  if (recovery_ && recovery_->write == write->id) recovery_->write = EntryId();
  if (keep_history_) history_.finished[write->id] = write->participants;
  FinishWrite(*write);
  if (write->done) outbox_.Add([done = std::move(write->done)] { done(absl::OkStatus()); });
  checkpoint_maker_.MaybeCut();
  Pump();
  EndWriteHold();
}

// Every ps has it. A step that is still open has not begun to commit: it comes after the write.
void CoordinatorCore::FinishWrite(const DirectWrite& write) {
  const uint64_t number = log_.FinishWrite(write.id);
  if (recovery_) return recovery_->order.Finish(number);
  steps_.OnWritten();
}

// ---- the hold ----

// Not before each step that was half applied has been carried through; and a checkpoint that is about to hold the workers goes first.
void CoordinatorCore::HoldForWrites() {
  if (write_hold_ || checkpoint_maker_.before_release() || !fences_.empty() || steps_.IsHalfApplied() ||
      clock_.Elapsed() < write_hold_given_up_ + CheckpointMaker::kTryAgain)
    return;
  write_hold_.emplace();
  write_hold_->number = kHoldOfWrites | ++write_holds_;
  write_hold_->since = clock_.Elapsed();
  for (auto& [index, worker] : workers_.all()) {
    if (worker.state == Worker::State::kDialing) continue;
    write_hold_->waiting.insert(index);
    workers_.Send(worker, Hold{write_hold_->number});
  }
  if (write_hold_->waiting.empty()) AdmitWrites();  // nobody is there who could commit
}

void CoordinatorCore::AdmitWrites() {
  write_hold_->held = true;
  write_hold_->admits = waiting_writes_.size();
}

// A worker that joins meanwhile is held like the others.
void CoordinatorCore::HoldIfWritesWait(Worker& worker) {
  if (!write_hold_) return;
  workers_.Send(worker, Hold{write_hold_->number});
  if (!write_hold_->held) write_hold_->waiting.insert(worker.index);
}

void CoordinatorCore::NoteHeldForWrites(int worker) {
  write_hold_->waiting.erase(worker);
  if (write_hold_->held || !write_hold_->waiting.empty()) return;
  AdmitWrites();
  Pump();
  EndWriteHold();  // those who waited may be gone
}

void CoordinatorCore::EndWriteHold() {
  if (!write_hold_ || !write_hold_->held || !open_writes_.empty()) return;
  workers_.SendToAll(Release{std::exchange(write_hold_, std::nullopt)->number});
  Pump();  // a checkpoint may have waited
}

void CoordinatorCore::GiveUpWriteHold() {
  if (!write_hold_ || write_hold_->held) return;
  write_hold_given_up_ = clock_.Elapsed();
  workers_.SendToAll(Release{std::exchange(write_hold_, std::nullopt)->number});
}

void CoordinatorCore::CheckWriteHold(absl::Duration now) {
  if (write_hold_ && now - write_hold_->since > CheckpointMaker::kLongestHold) GiveUpWriteHold();
}

}  // namespace divvy
