#include "ps_server/service/ps_data_handler.h"

#include <memory>
#include <utility>

#include "protocol/error.h"

namespace divvy {
namespace {

absl::Status Starting() {
  return MakeError(Reason::kNotReady,
                   "this parameter server is still starting: send the request again");
}

}  // namespace

void PsDataHandler::Call(PullRequest request, ResultCallback<PullReply> done) {
  const std::shared_ptr<ParameterServerCore> core = core_.Get();
  core == nullptr ? done(Starting()) : core->Call(std::move(request), std::move(done));
}

absl::Status PsDataHandler::Admit(DataMethod method, const Fence& fence,
                                  std::optional<int> worker) {
  const std::shared_ptr<ParameterServerCore> core = core_.Get();
  if (core == nullptr) return Starting();
  return method == DataMethod::kPull ? core->CheckPull(fence) : core->CheckCommit(fence, worker);
}

int64_t PsDataHandler::ReplyBytes(const PullRequest& request) {
  const std::shared_ptr<ParameterServerCore> core = core_.Get();
  return core == nullptr ? 0 : core->PullReplyBytes(request);
}

void PsDataHandler::Call(CommitRequest request, ResultCallback<CommitReply> done) {
  const std::shared_ptr<ParameterServerCore> core = core_.Get();
  core == nullptr ? done(Starting()) : core->Call(std::move(request), std::move(done));
}

}  // namespace divvy
