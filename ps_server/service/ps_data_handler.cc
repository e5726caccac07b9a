#include "ps_server/service/ps_data_handler.h"

#include <memory>
#include <utility>

#include "cluster/error.h"

namespace divvy {
namespace {

absl::Status Starting() { return MakeError(Reason::kNotReady, "the parameter server is starting"); }

}  // namespace

void PsDataHandler::Pull(PullRequest request, ResultCallback<PullReply> done) {
  const std::shared_ptr<ParameterServerCore> core = core_.Get();
  core == nullptr ? done(Starting()) : core->Pull(std::move(request), std::move(done));
}

int64_t PsDataHandler::ReplyBytes(const PullRequest& request) {
  const std::shared_ptr<ParameterServerCore> core = core_.Get();
  return core == nullptr ? 0 : core->PullReplyBytes(request);
}

void PsDataHandler::Commit(CommitRequest request, ResultCallback<CommitReply> done) {
  const std::shared_ptr<ParameterServerCore> core = core_.Get();
  core == nullptr ? done(Starting()) : core->Commit(std::move(request), std::move(done));
}

}  // namespace divvy
