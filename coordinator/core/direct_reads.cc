// The reads that the program makes outside of steps.
#include <utility>

#include "base/breakable.h"
#include "coordinator/core/coordinator_core.h"

namespace divvy {

void CoordinatorCore::Read(std::vector<VariableRead> reads,
                           ResultCallback<std::vector<Tensor>> done) {
  Event event(*this);
  if (abandoned_) return;
  if (ResizeWaits())
    return resizing_.Defer([self = shared_from_this(), reads, done] { self->Read(reads, done); });
  absl::Status refused = phase_.error();
  for (const VariableRead& read : reads) {
    if (refused.ok()) refused = CheckRead(*layout_plan_.layout(), read);
  }
  if (!refused.ok()) return outbox_.Add([done, refused] { done(refused); });
  ChooseEmpty();
  auto read = std::make_shared<DirectRead>();
  read->reads = std::move(reads);
  read->done = std::move(done);
  PlanRead(*read);
  if (read->requests.empty()) return outbox_.Add([read] { read->done(read->plan.Assemble({})); });
  open_reads_.insert(read);
  // SendReads sends the read when all servers have their state.
  if (BeforeRunning() || (recovery_.rewind() != nullptr && RuleHolds(Rule::kReadsWaitForReplay)))
    return;
  for (const auto& [ps, parts] : read->plan.parts()) SendRead(servers_[ps], read);
}

void CoordinatorCore::PlanRead(DirectRead& read) {
  read.plan = PullPlan(*layout_plan_.layout(), read.reads);
  read.requests.clear();
  read.replies.clear();
  for (const auto& [ps, parts] : read.plan.parts()) read.requests[ps].parts = parts;
}

// All servers have loaded another state. So every open read is sent again: earlier answers are of a
// state that is gone, and the variables may lie on other servers now.
void CoordinatorCore::SendReads() {
  for (auto next = open_reads_.begin(); next != open_reads_.end();) {
    const std::shared_ptr<DirectRead> read = *next++;
    absl::Status refused;
    for (const VariableRead& each : read->reads)
      refused.Update(CheckRead(*layout_plan_.layout(), each));
    if (!refused.ok()) {
      open_reads_.erase(read);
      outbox_.Add([read, refused] { read->done(refused); });
      continue;
    }
    PlanRead(*read);
    for (const auto& [ps, parts] : read->plan.parts()) SendRead(servers_[ps], read);
  }
}

void CoordinatorCore::SendRead(Ps& ps, std::shared_ptr<DirectRead> read) {
  const auto request = read->requests.find(ps.index);
  if (request == read->requests.end() || phase_.Is(Phase::kFailed)) return;
  request->second.fence = FenceFor(ps.incarnation);
  CallPs(ps, request->second, &CoordinatorCore::OnRead, read);
}

void CoordinatorCore::OnRead(Ps& ps, const absl::StatusOr<PullReply>& reply,
                             std::shared_ptr<DirectRead> read) {
  // The read is answered already, or the job has failed.
  if (open_reads_.count(read) == 0 || read->requests.count(ps.index) == 0) return;
  if (!reply.ok()) return RetryPs(ps, reply.status(), &CoordinatorCore::SendRead, read);
  servers_.NoteAnswer(ps);
  read->requests.erase(ps.index);
  read->replies[ps.index] = *reply;
  if (!read->requests.empty()) return;
  open_reads_.erase(read);
  // Assembling a large value takes seconds. The outbox must not wait for it, because every message
  // of the coordinator goes through the outbox.
  outbox_.Add([&executor = executor_, read] {
    executor.PostBlocking("read", [read] { read->done(read->plan.Assemble(read->replies)); });
  });
}

}  // namespace divvy
