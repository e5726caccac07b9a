// The handler of pulls and commits that arrive on data streams.
#ifndef DIVVY_PS_SERVER_SERVICE_PS_DATA_HANDLER_H_
#define DIVVY_PS_SERVER_SERVICE_PS_DATA_HANDLER_H_

#include <cstdint>
#include <functional>

#include "base/clock.h"
#include "base/once_set.h"
#include "ps_server/core/memory_budget.h"
#include "ps_server/core/parameter_server_core.h"
#include "ps_server/service/ps_metrics.h"
#include "ps_server/service/served_calls.h"
#include "rpc/data_server.h"

namespace divvy {

// Passes pulls and commits to the core. A request that arrives before the core has been started
// fails with NOT_READY. Thread-safe.
class PsDataHandler : public DataHandler {
 public:
  // REQUIRES: all outlive the server.
  PsDataHandler(const OnceSet<ParameterServerCore>& core, MemoryBudget& commits,
                MemoryBudget& replies, PsMetrics& metrics, ServedCalls& served)
      : core_(core), commits_(commits), replies_(replies), metrics_(metrics), served_(served) {}

  void OnAnswered(const DataOutcome& outcome) override {
    metrics_.Note(outcome);
    served_.Note(outcome, Clock::Real().Elapsed());
  }

  void Call(PullRequest request, ResultCallback<PullReply> done) override;
  void Call(CommitRequest request, ResultCallback<CommitReply> done) override;
  absl::Status Admit(DataMethod method, const Fence& fence, std::optional<int> worker) override;
  int64_t ReplyBytes(const PullRequest& request) override;
  MemoryBudget::Ticket Reserve(DataClaim claim,
                               std::function<void(absl::Status)> granted) override {
    return BudgetOf(claim.of).Reserve({claim.bytes, claim.overhead, std::move(claim.owner)},
                                      std::move(granted));
  }
  void Release(DataMemory of, MemoryBudget::Ticket ticket) override {
    BudgetOf(of).Release(ticket);
  }

 private:
  MemoryBudget& BudgetOf(DataMemory of) { return of == DataMemory::kReply ? replies_ : commits_; }

  const OnceSet<ParameterServerCore>& core_;
  MemoryBudget& commits_;
  MemoryBudget& replies_;
  PsMetrics& metrics_;
  ServedCalls& served_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_PS_DATA_HANDLER_H_
