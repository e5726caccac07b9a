// Commits: admission, the queues of writers, applying, and who is answered when.
//
//   arrival   1. CheckAdmissible  2. plan, without the lock  3. CheckAdmissible again, dedupe, plan
//             4. APPLYING, a place in the queue of every shard written
//   turn      5. at the head of all its queues: CheckAdmissible and the shards' existence once
//             more, for a fence, an epoch or a delete may have passed
//   running   6. block tasks       end  7. versions, APPLIED, answer; same-id requests that came
//             meanwhile go through 3 again; next in the queues
#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "ps_server/core/runs.h"

namespace divvy {

void ParameterServerCore::Call(CommitRequest request, ResultCallback<CommitReply> done) {
  std::shared_ptr<const ShardTable> shards;
  {
    CoreLock lock(mu_, outbox_);
    absl::Status status = CheckAdmissible(request);
    if (!status.ok()) return Answer(done, std::move(status));
    shards = shards_.table();
  }
  absl::StatusOr<CommitPlan> plan =
      CommitPlan::Make(std::move(request.parts), *shards, options_.block_bytes);
  auto run = std::make_shared<CommitRun>(
      CommitRun{std::move(request), std::move(done), std::move(plan), nullptr});
  CoreLock lock(mu_, outbox_);
  Enter(run);
  StartNext();
}

bool ParameterServerCore::MayCommit(SessionId session) const {
  return sessions_.Has(session) || !RuleHolds(Rule::kSessionCheck);
}

absl::Status ParameterServerCore::CheckCommitter(const Fence& fence, EntryId entry) const {
  RETURN_IF_ERROR(CheckCall(fence, Ready()));
  if (MayCommit(fence.session)) return absl::OkStatus();
  return Refusal(Reason::kSessionFenced,
                 absl::StrCat("session ", fence.session.value(), " may not commit (any more)"),
                 entry);
}

absl::Status ParameterServerCore::CheckCommit(const Fence& fence, std::optional<int> worker) const {
  MutexLock lock(mu_);
  RETURN_IF_ERROR(CheckCommitter(fence, EntryId()));
  const int owner = sessions_.WorkerOf(fence.session);
  if (!worker || owner == SessionSet::kAnyWorker || owner == *worker) return absl::OkStatus();
  return Refusal(
      Reason::kNotAuthorized,
      absl::StrCat("worker ", *worker, " may not commit in session ", fence.session.value(),
                   ", which is of worker ", owner, ": check which certificate the task was given"));
}

absl::Status ParameterServerCore::CheckAdmissible(const CommitRequest& request) const {
  RETURN_IF_ERROR(CheckCommitter(request.fence, request.entry));
  if (applied_.IsClosed(request.entry)) {
    return Refusal(
        Reason::kStepClosed,
        absl::StrCat("entry ", request.entry.value(), " is closed: it was finished or given up"),
        request.entry);
  }
  return absl::OkStatus();
}

// The header is whole, the plan could be made, and its shards are still those of the table.
absl::Status ParameterServerCore::CheckPlan(const CommitRun& run) const {
  if (run.request.entry.value() == 0 || run.request.participants < 1)
    return Refusal(Reason::kInvalid, "a commit names its entry and how many servers it goes to");
  if (!run.plan.ok())
    return Refusal(ReasonOf(run.plan.status()), run.plan.status().message(), run.request.entry);
  for (const auto& [key, shard] : run.plan->shards()) {
    const auto found = shards_.table()->find(key);
    if (found == shards_.table()->end() || found->second != shard)
      return Refusal(Reason::kUnknownShard, absl::StrCat(ShardText(shard->spec()), " is gone"),
                     run.request.entry);
  }
  return absl::OkStatus();
}

// The entry has been applied: answers. Or it is on its way: `run` will be looked at again when that
// is settled.
bool ParameterServerCore::IsDuplicate(const std::shared_ptr<CommitRun>& run) {
  if (!RuleHolds(Rule::kDedupe)) return false;
  const AppliedTable::State state = applied_.Find(run->request.entry);
  if (state == AppliedTable::State::kApplying) commits_.AddDuplicate(run->request.entry, run);
  if (state == AppliedTable::State::kApplied)
    Answer(run->done, CommitReply{true, applied_.applied_seq(), {}});
  return state != AppliedTable::State::kUnknown;
}

void ParameterServerCore::Enter(const std::shared_ptr<CommitRun>& run) {
  absl::Status status = CheckAdmissible(run->request);
  if (!status.ok()) return Answer(run->done, std::move(status));
  HitFailpoint(Failpoint::kPushBeforeDedupe);
  if (IsDuplicate(run)) return;
  status = CheckPlan(*run);
  if (!status.ok()) return Answer(run->done, std::move(status));
  const CommitRequest& request = run->request;
  applied_.Begin({request.entry, request.participants, request.kind, request.inputs});
  HitFailpoint(Failpoint::kPushBegun);
  commits_.Enter(run, run->plan->queues());
}

// Whether there is memory to keep what a commit changes of a checkpoint that is being written.
bool ParameterServerCore::MayStart() const {
  return snapshot_ == nullptr || snapshot_->over ||
         snapshot_->expected_bytes + snapshot_->frozen->kept_bytes() <
             options_.snapshot_buffer_bytes;
}

void ParameterServerCore::StartNext() {
  while (commits_.has_ready() && MayStart()) StartOrRefuse(*commits_.TakeReady());
}

void ParameterServerCore::StartOrRefuse(const std::shared_ptr<CommitRun>& run) {
  absl::Status status = CheckAdmissible(run->request);
  if (status.ok()) status = CheckPlan(*run);
  if (status.ok()) {
    commits_.Start(run);
    if (snapshot_ != nullptr && !snapshot_->over) {
      run->frozen = snapshot_->frozen;
      snapshot_->expected_bytes += run->plan->most_kept_bytes();
    }
    outbox_.Add([this, run] {
      RunUnits(
          executor_, weak_from_this(), run->plan->units(), options_.at_once_bytes,
          [run](int64_t unit) {
            run->plan->Apply(unit, run->frozen.get());
            HitFailpoint(Failpoint::kPushMidApply);
          },
          [this, run] { FinishCommit(run); });
    });
    return;
  }
  applied_.Abandon(run->request.entry);
  commits_.Refuse(run->plan->queues());
  Answer(run->done, std::move(status));
  SettleDuplicates(run->request.entry);
}

// They arrived while the entry was being applied. It was: they are answered as duplicates. It was
// refused: the first of them takes its place.
void ParameterServerCore::SettleDuplicates(EntryId entry) {
  for (const auto& run : commits_.TakeDuplicates(entry)) Enter(run);
}

void ParameterServerCore::FinishCommit(const std::shared_ptr<CommitRun>& run) {
  CoreLock lock(mu_, outbox_);
  const EntryId entry = run->request.entry;
  if (snapshot_ != nullptr && run->frozen != nullptr && snapshot_->frozen == run->frozen)
    snapshot_->expected_bytes -= run->plan->most_kept_bytes();
  // perhaps the last handle: freed outside the lock
  outbox_.Add([frozen = std::move(run->frozen)] {});
  commits_.Finish(run, run->plan->queues());
  HitFailpoint(Failpoint::kPushBlocksDone);
  for (const auto& [key, shard] : run->plan->shards()) ++shard->version;
  applied_.Finish(entry);
  HitFailpoint(Failpoint::kPushBeforeReply);
  CommitReply reply{false, applied_.applied_seq(), {}};
  for (const auto& shard : run->plan->part_shards()) reply.versions.push_back(shard->version);
  Answer(run->done, std::move(reply));
  if (kHasFailpoints) outbox_.Add([] { HitFailpoint(Failpoint::kPushAfterReply); });
  SettleDuplicates(entry);
  StartNext();
  AnswerHeld();
  AnswerShutdowns();
}

// A running apply that no Attach or Sync may leave behind: of an older epoch, or of a session that
// is out of the set.
bool ParameterServerCore::ObsoleteRunning() const {
  for (const auto& run : commits_.running()) {
    const Fence& fence = run->request.fence;
    if (fence.epoch != epoch_ || !sessions_.Has(fence.session)) return true;
  }
  return false;
}

}  // namespace divvy
