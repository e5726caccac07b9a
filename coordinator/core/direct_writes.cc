// The writes that the program makes outside of steps: the calls, and the commits to the servers.
// write_queue.h has the order of writes among steps.
#include <utility>

#include "coordinator/core/coordinator_core.h"

namespace divvy {

// A large write is cut into commits without the lock, so that workers are answered meanwhile. If
// the layout has changed by then, it is cut again.
void CoordinatorCore::Write(std::vector<StagedWrite> writes, StatusCallback done) {
  WriteQueue::CommitPlan plan;
  std::shared_ptr<const Layout> planned_by;
  for (;;) {
    int64_t steps = 0;
    double scale = 1;
    {
      Event event(*this);
      if (!MayPlanWrite(writes, done)) return;
      if (planned_by == layout_plan_.layout()) return QueueWrite(std::move(plan), std::move(done));
      planned_by = layout_plan_.layout(), steps = steps_.totals().finished_steps,
      scale = steps_.learning_rate_scale();
    }
    plan = PlanCommits(*planned_by, writes, steps, scale);
  }
}

bool CoordinatorCore::MayPlanWrite(const std::vector<StagedWrite>& writes,
                                   const StatusCallback& done) {
  if (abandoned_) return false;
  if (ResizeWaits()) {
    resizing_.Defer([self = shared_from_this(), writes, done] { self->WriteLater(writes, done); });
    return false;
  }
  absl::Status refused = phase_.error();
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

void CoordinatorCore::QueueWrite(WriteQueue::CommitPlan plan, StatusCallback done) {
  absl::Status refused;
  for (const auto& [ps, parts] : plan) {
    refused.Update(CheckOptimizers(*layout_plan_.layout(), parts));
    refused.Update(CheckCommitSize(parts, ps, servers_[ps].max_commit_bytes));
  }
  if (!refused.ok() || plan.empty())
    return outbox_.Add([done = std::move(done), refused] { done(refused); });
  writes_.Add(std::move(plan), std::move(done));
}

// A program that only reads, such as an evaluator, keeps all rows.
void CoordinatorCore::EvictRows(absl::Duration now) {
  if (phase_.Is(Phase::kRunning) && !IsDraining() && !ResizeWaits() && steps_.has_trained())
    writes_.AddEviction(*layout_plan_.layout(), now, stored_.row().epoch);
}

// After the slots are created, the write begins again. Slots that a step needs are created in the
// same way.
bool CoordinatorCore::CreateMissingSlots(const std::vector<StagedWrite>& writes,
                                         const StatusCallback& done) {
  const auto missing = MissingSlots(*layout_plan_.layout(), writes);
  if (missing.empty()) return false;
  const auto& [variable, optimizer] = missing.front();
  layout_changes_.CreateSlots(
      variable, optimizer, [self = shared_from_this(), writes, done](const absl::Status& created) {
        created.ok() ? self->WriteLater(writes, done) : done(created);
      });
  return true;
}

// Callers that run in the outbox use it, because planning a large write takes long and the outbox
// must not wait.
void CoordinatorCore::WriteLater(std::vector<StagedWrite> writes, StatusCallback done) {
  executor_.PostBlocking("write", [self = shared_from_this(), writes = std::move(writes),
                                   done = std::move(done)] { self->Write(writes, done); });
}

// ---- calls of the write queue ----

bool CoordinatorCore::MayBeginWrite() const {
  return MayGiveId(stored_.awaits_values() ? IdFor::kFirstValues : IdFor::kAny) &&
         !checkpoint_maker_.holding();
}

bool CoordinatorCore::MayHold() const {
  return !checkpoint_maker_.before_release() && workers_.fences().empty();
}

void CoordinatorCore::OnWriteBegun(const DirectWrite& write) {
  if (!recovery_.log().kept()) return;
  RedoLog::Write logged;
  logged.tick = write.tick;
  for (const auto& [ps, commit] : write.commits) logged.parts[ps] = commit.parts;
  recovery_.log().AddWrite(write.id, std::move(logged));
  recovery_.GiveUpFullLog();
}

void CoordinatorCore::SendCommit(int ps, const std::shared_ptr<DirectWrite>& write) {
  SendWrite(servers_[ps], write);
}

void CoordinatorCore::SendWrite(Ps& ps, std::shared_ptr<DirectWrite> write) {
  std::optional<CommitRequest> request = writes_.RequestFor(ps.index, *write);
  if (!request || phase_.Is(Phase::kFailed)) return;
  request->fence = FenceFor(ps.incarnation);
  CallPs(ps, *std::move(request), &CoordinatorCore::OnWritten, write);
}

void CoordinatorCore::OnWritten(Ps& ps, const absl::StatusOr<CommitReply>& answer,
                                std::shared_ptr<DirectWrite> write) {
  if (!writes_.IsOpen(write->id)) return;
  if (!answer.ok()) return RetryPs(ps, answer.status(), &CoordinatorCore::SendWrite, write);
  servers_.NoteAnswer(ps);
  if (!writes_.OnCommitted(ps.index, *write)) return;
  if (keep_history_) history_.finished[write->id] = write->participants;
  recovery_.OnWritten(write->id);
  writes_.Answer(*write);
  checkpoint_maker_.MaybeCut();
}

void CoordinatorCore::OnHeld(const Worker& worker, uint64_t number) {
  if (writes_.IsHold(number)) return writes_.OnHeld(worker.index);
  checkpoint_maker_.OnHeld(worker.index, number);
}

}  // namespace divvy
