#include "rpc/dialer.h"

#include "rpc/channel.h"
#include "rpc/coordinator_client.h"
#include "rpc/parameter_client.h"
#include "rpc/worker_client.h"

namespace divvy {

RpcDialer::RpcDialer(Executor& executor, const std::optional<TlsFiles>& tls)
    : executor_(executor),
      open_(std::make_shared<OpenCalls>()),
      ps_(MakeChannelCredentials(tls, "ps")),
      worker_(MakeChannelCredentials(tls, "worker")),
      chief_(MakeChannelCredentials(tls, "chief")) {}

RpcDialer::~RpcDialer() { Close(); }

void RpcDialer::Close() { open_->CancelAndWait(); }

std::shared_ptr<ParameterClient> RpcDialer::ParameterServer(const std::string& address) {
  return MakeParameterClient({executor_, open_, address}, MakeChannel(address, ps_), MakeChannel(address, ps_));
}

std::shared_ptr<WorkerClient> RpcDialer::Worker(const std::string& address) {
  return MakeWorkerClient({executor_, open_, address}, MakeChannel(address, worker_));
}

std::shared_ptr<CoordinatorClient> RpcDialer::Coordinator(const std::string& address) {
  return MakeCoordinatorClient({executor_, open_, address}, MakeChannel(address, chief_));
}

}  // namespace divvy
