// Commits: admission, the queues of writers, applying, and the answers.
//
//   arrival   1. CheckAdmissible
//             2. make the plan, without the lock
//             3. Enter: CheckAdmissible again, dedupe, CheckPlan
//             4. the entry is APPLYING, and the commit enters the queue of every shard it writes to
//   turn      5. at the head of all its queues: CheckAdmissible and CheckPlan once more, because a
//                fence, an epoch or a deletion may have come meanwhile
//   running   6. the plan is applied: a small one on the thread that brought it, a large one in
//                tasks for blocks
//   end       7. shard versions grow, the entry is APPLIED, the commit is answered; requests with
//                the same id that arrived meanwhile go through 3 again; the next commits start
#include "absl/strings/str_cat.h"
#include "base/breakable.h"
#include "base/failpoint.h"
#include "base/status_macros.h"
#include "ps_server/core/runs.h"

namespace divvy {
namespace {

// Commits that a thread applies one after another before it leaves the rest to a task.
constexpr int kMostInARow = 8;

}  // namespace

void ParameterServerCore::Call(CommitRequest request, ResultCallback<CommitReply> done) {
  std::shared_ptr<const ShardTable> shards;
  uint64_t version = 0;
  {
    CoreLock lock(mu_, outbox_);
    absl::Status status = CheckAdmissible(request);
    if (!status.ok()) return Answer(done, std::move(status));
    shards = shards_.table();
    version = shards_.table_version();
  }
  absl::StatusOr<CommitPlan> plan =
      CommitPlan::Make(std::move(request.parts), *shards, options_.block_bytes,
                       {request.entry.value(), request.tick});
  auto run = std::make_shared<CommitRun>(
      CommitRun{std::move(request), std::move(done), version, std::move(plan), nullptr});
  {
    CoreLock lock(mu_, outbox_);
    Enter(run);
    StartNext();
  }
  RunStarted();
}

bool ParameterServerCore::MayCommit(SessionId session) const {
  return sessions_.Has(session) || !RuleHolds(Rule::kSessionCheck);
}

absl::Status ParameterServerCore::CheckCommitter(const Fence& fence, EntryId entry) const {
  RETURN_IF_ERROR(CheckCall(fence, Ready()));
  if (MayCommit(fence.session)) return absl::OkStatus();
  return Refusal(
      Reason::kSessionFenced,
      absl::StrCat("session ", fence.session.value(),
                   " may not commit: it has been fenced, or this server does not know it"),
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

// Whether the header is complete, the plan could be made, and the plan's shards are still in the
// table.
absl::Status ParameterServerCore::CheckPlan(const CommitRun& run) const {
  if (run.request.entry.value() == 0 || run.request.participants < 1)
    return Refusal(Reason::kInvalid, "a commit must name its entry and at least 1 participant");
  if (!run.plan.ok())
    return Refusal(ReasonOf(run.plan.status()), run.plan.status().message(), run.request.entry);
  if (run.planned_with == shards_.table_version()) return absl::OkStatus();
  for (const std::shared_ptr<Shard>& shard : run.plan->shards()) {
    const auto found = shards_.table()->find(shard->spec().key);
    if (found == shards_.table()->end() || found->second != shard)
      return Refusal(Reason::kUnknownShard,
                     absl::StrCat(ShardText(shard->spec()), " has been deleted or replaced"),
                     run.request.entry);
  }
  return absl::OkStatus();
}

// Answers `run` if its entry has been applied already. If the entry is being applied, `run` waits
// until that is settled.
bool ParameterServerCore::IsDuplicate(const std::shared_ptr<CommitRun>& run) {
  if (!RuleHolds(Rule::kDedupe)) return false;
  const AppliedTable::State state = applied_.Find(run->request.entry);
  if (state == AppliedTable::State::kApplying) commits_.AddDuplicate(run->request.entry, run);
  if (state == AppliedTable::State::kApplied) {
    if (!RuleHolds(Rule::kEvictionsCountOnce) && run->plan.ok() && run->plan->evicts())
      return false;
    if (!RuleHolds(Rule::kAttemptsDoNotCount) && run->plan.ok()) run->plan->CountAgain();
    Answer(run->done, CommitReply{true, applied_.applied_seq(), {}});
  }
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

// Whether there is memory for copies of the rows that a commit changes while a checkpoint is
// written.
bool ParameterServerCore::MayStart() const {
  return snapshot_ == nullptr || snapshot_->over ||
         snapshot_->expected_bytes + snapshot_->frozen->kept_bytes() <
             options_.snapshot_buffer_bytes;
}

void ParameterServerCore::StartNext() {
  while (commits_.has_ready() && MayStart()) StartOrRefuse(*commits_.TakeReady());
  // These wait for memory that the writing of the next slice frees.
  if (commits_.has_ready() && snapshot_ != nullptr) EndPause(snapshot_);
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
    started_.push_back(run);
    return;
  }
  applied_.Abandon(run->request.entry);
  commits_.Refuse(run->plan->queues());
  Answer(run->done, std::move(status));
  SettleDuplicates(run->request.entry);
}

// Handles the requests that arrived while the entry was being applied. If the entry was applied,
// they are answered as duplicates. If it was refused, the first of them takes its place.
void ParameterServerCore::SettleDuplicates(EntryId entry) {
  for (const auto& run : commits_.TakeDuplicates(entry)) Enter(run);
}

std::shared_ptr<ParameterServerCore::CommitRun> ParameterServerCore::TakeStarted() {
  MutexLock lock(mu_);
  if (started_.empty()) return nullptr;
  std::shared_ptr<CommitRun> run = std::move(started_.front());
  started_.pop_front();
  return run;
}

// Not as effects of the outbox, which run on one thread at a time: small commits of several streams
// are applied side by side, each on the thread that brought it. A thread that goes on with the
// commits that have become ready meanwhile soon leaves the rest to a task, because its own stream
// waits for it.
void ParameterServerCore::RunStarted() {
  for (int i = 0; i < kMostInARow; ++i) {
    const std::shared_ptr<CommitRun> run = TakeStarted();
    if (run == nullptr) return;
    const bool at_once = run->plan->units().bytes() <= options_.at_once_bytes;
    RunUnits(
        executor_, weak_from_this(), run->plan->units(), options_.at_once_bytes,
        [run](int64_t unit) {
          run->plan->Apply(unit, run->frozen.get());
          HitFailpoint(Failpoint::kPushMidApply);
        },
        [this, run, at_once] {
          FinishCommit(run);
          if (!at_once) RunStarted();
        });
  }
  executor_.Post([weak = weak_from_this()] {
    if (const auto core = weak.lock()) core->RunStarted();
  });
}

void ParameterServerCore::FinishCommit(const std::shared_ptr<CommitRun>& run) {
  CoreLock lock(mu_, outbox_);
  const EntryId entry = run->request.entry;
  if (snapshot_ != nullptr && run->frozen != nullptr && snapshot_->frozen == run->frozen)
    snapshot_->expected_bytes -= run->plan->most_kept_bytes();
  // Perhaps the last handle, which is freed outside the lock.
  outbox_.Add([frozen = std::move(run->frozen)] {});
  commits_.Finish(run, run->plan->queues());
  HitFailpoint(Failpoint::kPushBlocksDone);
  for (const std::shared_ptr<Shard>& shard : run->plan->shards()) ++shard->version;
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

// Whether a running commit is of an older epoch, or of a session that is not in the set. No Attach
// or Sync is answered before such a commit has ended.
bool ParameterServerCore::ObsoleteRunning() const {
  for (const auto& run : commits_.running()) {
    const Fence& fence = run->request.fence;
    if (fence.epoch != epoch_ || !sessions_.Has(fence.session)) return true;
  }
  return false;
}

}  // namespace divvy
