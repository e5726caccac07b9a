// Pulls and commits, as the data streams deliver them.
#ifndef DIVVY_PS_SERVER_SERVICE_PS_DATA_HANDLER_H_
#define DIVVY_PS_SERVER_SERVICE_PS_DATA_HANDLER_H_

#include <cstdint>
#include <functional>

#include "base/late.h"
#include "ps_server/core/commit_budget.h"
#include "ps_server/core/parameter_server_core.h"
#include "rpc/data_server.h"

namespace divvy {

// Hands them to the core; a request that comes before the core is there answers NOT_READY. Thread-safe.
class PsDataHandler : public DataHandler {
 public:
  // REQUIRES: both outlive the server.
  PsDataHandler(const Late<ParameterServerCore>& core, CommitBudget& budget) : core_(core), budget_(budget) {}

  void Pull(PullRequest request, ResultCallback<PullReply> done) override;
  void Commit(CommitRequest request, ResultCallback<CommitReply> done) override;
  CommitBudget::Ticket Reserve(int64_t bytes, std::function<void(absl::Status)> granted) override { return budget_.Reserve(bytes, std::move(granted)); }
  void Release(CommitBudget::Ticket ticket) override { budget_.Release(ticket); }

 private:
  const Late<ParameterServerCore>& core_;
  CommitBudget& budget_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_PS_DATA_HANDLER_H_
