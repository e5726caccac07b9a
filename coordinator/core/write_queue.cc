#include "coordinator/core/write_queue.h"

#include <utility>

#include "base/breakable.h"

namespace divvy {
namespace {

// Distinguishes the numbers of these holds from those of checkpoints.
constexpr uint64_t kHoldOfWrites = uint64_t{1} << 63;

}  // namespace

// ---- writes ----

void WriteQueue::Add(CommitPlan plan, StatusCallback done) {
  auto write = std::make_shared<Write>();
  write->done = std::move(done);
  for (auto& [ps, parts] : plan) {
    write->participants.push_back(ps);
    write->commits[ps].parts = std::move(parts);
  }
  waiting_.push_back(std::move(write));
}

void WriteQueue::AddEviction(const Layout& layout, absl::Duration now, Epoch epoch) {
  if (is_evicting_) return;
  CommitPlan plan = evictions_.Next(layout, steps_.tick(), now, epoch);
  if (plan.empty()) return;
  is_evicting_ = true;
  Add(std::move(plan), nullptr);
  waiting_.back()->evicts = true;
}

void WriteQueue::Replay(EntryId id, const CommitPlan& plan, uint32_t tick) {
  std::shared_ptr<Write>& write = open_[id];
  if (write == nullptr) write = std::make_shared<Write>();
  write->id = id;
  write->participants.clear();
  for (const auto& [ps, parts] : plan) {
    write->participants.push_back(ps);
    write->commits[ps].parts = parts;
  }
  write->tick = tick;
  Send(write);
}

void WriteQueue::Start() {
  while (!waiting_.empty() && host_.MayBeginWrite() && !steps_first_) {
    if (!MayWriteNow()) BeginHold();
    if (!MayWriteNow()) return;
    if (hold_ && hold_->held) --hold_->admits;
    const std::shared_ptr<Write> write = std::move(waiting_.front());
    waiting_.pop_front();
    Begin(write);
  }
}

void WriteQueue::StartBehindSteps() {
  if (!steps_first_ || !open_.empty()) return;
  steps_first_ = false;
  Start();
}

bool WriteQueue::MakesStepsWait() {
  const bool waits = !open_.empty() && !hold_ && RuleHolds(Rule::kStepsWaitForWrites);
  steps_first_ |= waits;
  return waits;
}

bool WriteQueue::MayWriteNow() const {
  if (hold_ && hold_->held) return hold_->admits > 0;
  return steps_.open().empty() || !RuleHolds(Rule::kWritesHoldCommits);
}

void WriteQueue::Begin(const std::shared_ptr<Write>& write) {
  write->id = host_.GiveId();
  write->tick = steps_.tick();
  open_.emplace(write->id, write);
  host_.OnWriteBegun(*write);
  Send(write);
}

void WriteQueue::Send(const std::shared_ptr<Write>& write) {
  for (auto& [ps, commit] : write->commits) {
    commit.entry = write->id;
    commit.attempt = 1;
    commit.tick = write->tick;
    commit.kind = EntryKind::kWrite;
    commit.participants = static_cast<int>(write->participants.size());
  }
  for (const int ps : write->participants) host_.SendCommit(ps, write);
}

std::optional<CommitRequest> WriteQueue::RequestFor(int ps, const Write& write) const {
  const auto commit = write.commits.find(ps);
  if (commit == write.commits.end()) return std::nullopt;
  return commit->second;
}

bool WriteQueue::OnCommitted(int ps, Write& write) {
  write.commits.erase(ps);
  if (!write.commits.empty()) return false;
  open_.erase(write.id);
  return true;
}

void WriteQueue::Answer(Write& write) {
  if (write.evicts) is_evicting_ = false;
  if (write.done) outbox_.Add([done = std::move(write.done)] { done(absl::OkStatus()); });
}

// ---- the hold ----

// A hold does not begin before every half-applied step has been run again. A checkpoint that is
// about to hold the workers goes first.
void WriteQueue::BeginHold() {
  if (hold_ || !host_.MayHold() || steps_.IsHalfApplied() ||
      clock_.Elapsed() < given_up_ + WorkerSet::kTryHoldAgain)
    return;
  Hold hold;
  hold.number = kHoldOfWrites | ++holds_;
  hold.since = clock_.Elapsed();
  for (auto& [index, worker] : workers_.all()) {
    if (worker.state == Worker::State::kDialing) continue;
    hold.waiting.insert(index);
    workers_.Send(worker, divvy::Hold{hold.number});
  }
  hold_ = std::move(hold);
  // No worker is present, so none can commit.
  if (hold_->waiting.empty()) Admit();
}

void WriteQueue::Admit() {
  hold_->held = true;
  hold_->admits = waiting_.size();
}

void WriteQueue::HoldIfOthersAre(Worker& joining) {
  if (!hold_) return;
  workers_.Send(joining, divvy::Hold{hold_->number});
  if (!hold_->held) hold_->waiting.insert(joining.index);
}

void WriteQueue::OnHeld(int worker) {
  hold_->waiting.erase(worker);
  if (!hold_->held && hold_->waiting.empty()) Admit();
}

bool WriteQueue::MaybeEndHold() {
  if (!hold_ || !hold_->held || !open_.empty()) return false;
  Release();
  return true;
}

void WriteQueue::GiveUpHold() {
  if (!hold_ || hold_->held) return;
  given_up_ = clock_.Elapsed();
  Release();
}

void WriteQueue::Release() {
  workers_.SendToAll(divvy::Release{std::exchange(hold_, std::nullopt)->number});
}

void WriteQueue::CheckHold(absl::Duration now) {
  if (hold_ && now - hold_->since > WorkerSet::kLongestHold) GiveUpHold();
}

// ---- the end, and state ----

void WriteQueue::FailAll(const absl::Status& error, std::vector<Task>& calls) {
  const auto fail = [&](const std::shared_ptr<Write>& write) {
    calls.push_back([write, error] {
      if (write->done) write->done(error);
    });
  };
  for (const auto& [id, write] : open_) fail(write);
  for (const auto& write : waiting_) fail(write);
  open_.clear(), waiting_.clear();
  hold_.reset();
}

std::optional<WriteQueue::HoldWait> WriteQueue::WaitsFor() const {
  if (!hold_ || hold_->waiting.empty()) return std::nullopt;
  return HoldWait{*hold_->waiting.begin(), hold_->since};
}

std::map<std::string, int64_t> WriteQueue::Sizes() const {
  return {{"open writes", static_cast<int64_t>(open_.size())},
          {"waiting writes", static_cast<int64_t>(waiting_.size())}};
}

}  // namespace divvy
