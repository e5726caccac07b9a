// The program's own reads.
#include <utility>

#include "base/breakable.h"
#include "coordinator/core/coordinator_core.h"

namespace divvy {

void CoordinatorCore::Read(std::vector<VariableRead> reads, ResultCallback<std::vector<Tensor>> done) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_) return;
  if (ResizeWaits()) return resizing_->deferred.push_back([self = shared_from_this(), reads, done] { self->Read(reads, done); });
  absl::Status refused = job_error_;
  for (const VariableRead& read : reads) {
    if (refused.ok()) refused = CheckRead(*layout_, read);
  }
  if (!refused.ok()) return outbox_.Add([done, refused] { done(refused); });
  ChooseEmpty();
  auto read = std::make_shared<DirectRead>();
  read->reads = std::move(reads);
  read->done = std::move(done);
  PlanRead(*read);
  if (read->requests.empty()) return outbox_.Add([read] { read->done(read->plan.Assemble({})); });
  open_reads_.insert(read);
  if (BeforeRunning() || (recovery_ && RuleHolds(Rule::kReadsWaitForReplay))) return;  // it is sent when all is there
  for (const auto& [ps, parts] : read->plan.parts()) SendRead(read, ps);
}

void CoordinatorCore::PlanRead(DirectRead& read) {
  read.plan = PullPlan(*layout_, read.reads);
  read.requests.clear();
  read.replies.clear();
  for (const auto& [ps, parts] : read.plan.parts()) read.requests[ps].parts = parts;
}

// All servers have loaded: what some had answered before is of a state that is gone, and the variables may lie elsewhere.
void CoordinatorCore::SendReads() {
  for (auto next = open_reads_.begin(); next != open_reads_.end();) {
    const std::shared_ptr<DirectRead> read = *next++;
    absl::Status refused;
    for (const VariableRead& each : read->reads) refused.Update(CheckRead(*layout_, each));
    if (!refused.ok()) {
      open_reads_.erase(read);
      outbox_.Add([read, refused] { read->done(refused); });
      continue;
    }
    PlanRead(*read);
    for (const auto& [ps, parts] : read->plan.parts()) SendRead(read, ps);
  }
}

void CoordinatorCore::SendRead(const std::shared_ptr<DirectRead>& read, int ps) {
  const auto request = read->requests.find(ps);
  if (request == read->requests.end() || phase_ == Phase::kFailed) return;
  request->second.fence = FenceFor(ps_[ps].incarnation);
  outbox_.Add([self = shared_from_this(), read, ps, tries = ps_[ps].tries, client = ps_[ps].client, request = request->second] {
    client->Pull(request, [weak = self->weak_from_this(), read, ps, tries](absl::StatusOr<PullReply> reply) {
      if (const auto self = weak.lock()) self->OnRead(read, ps, tries, std::move(reply));
    });
  });
}

void CoordinatorCore::OnRead(const std::shared_ptr<DirectRead>& read, int ps, uint64_t tries, absl::StatusOr<PullReply> reply) {
  CoreLock lock(mu_, outbox_);
  if (abandoned_ || !Same(ps, tries) || open_reads_.count(read) == 0 || read->requests.count(ps) == 0) return;  // answered, or the job has failed
  if (!reply.ok()) {
    if (const auto wait = OnPsFailure(ps_[ps], reply.status())) {
      LaterAt(ps, *wait, [read, ps](CoordinatorCore& core) DIVVY_NO_THREAD_SAFETY_ANALYSIS { core.SendRead(read, ps); });
    }
    return;
  }
  OnPsAnswer(ps_[ps]);
  read->requests.erase(ps);
  read->replies[ps] = *std::move(reply);
  if (!read->requests.empty()) return;
  open_reads_.erase(read);
  // Assembling a large value takes seconds. The outbox must not wait for it: it carries all that the coordinator says to anybody.
  outbox_.Add([&executor = executor_, read] { executor.PostBlocking("read", [read] { read->done(read->plan.Assemble(read->replies)); }); });
}

}  // namespace divvy
