#include "rpc/dialer.h"

#include "protocol/role.h"
#include "rpc/channel.h"
#include "rpc/coordinator_client.h"
#include "rpc/parameter_client.h"
#include "rpc/worker_client.h"

namespace divvy {

RpcDialer::RpcDialer(Executor& executor, const std::optional<TlsFiles>& tls, bool shares_memory)
    : executor_(executor),
      open_(std::make_shared<OpenCalls>()),
      identity_(tls),
      shares_memory_(shares_memory) {}

RpcDialer::~RpcDialer() { Close(); }

void RpcDialer::Close() { open_->CancelAndWait(); }

namespace {

// A stream has a connection of its own.
std::shared_ptr<ParameterClient> ParameterClientOf(
    const CallEnvironment& call, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  return MakeParameterClient(call, MakeChannel(call.address, credentials),
                             MakeChannel(call.address, credentials));
}

}  // namespace

std::shared_ptr<ParameterClient> RpcDialer::ParameterServer(const std::string& address) {
  return ParameterClientOf({executor_, open_, address, shares_memory_},
                           identity_.For(RoleName(Role::kPs)));
}

std::shared_ptr<ParameterClient> RpcDialer::ParameterServerAt(const std::string& address,
                                                              int index) {
  return ParameterClientOf({executor_, open_, address, shares_memory_},
                           identity_.For(RoleName(Role::kPs), index));
}

std::shared_ptr<WorkerClient> RpcDialer::Worker(const std::string& address) {
  return MakeWorkerClient({executor_, open_, address},
                          MakeChannel(address, identity_.For(RoleName(Role::kWorker))));
}

std::shared_ptr<WorkerClient> RpcDialer::WorkerAt(const std::string& address, int index) {
  return MakeWorkerClient({executor_, open_, address},
                          MakeChannel(address, identity_.For(RoleName(Role::kWorker), index)));
}

std::shared_ptr<StatusClient> RpcDialer::StatusOf(Role role, int index,
                                                  const std::string& address) {
  return std::make_shared<StatusClient>(CallEnvironment{executor_, open_, address},
                                        MakeChannel(address, identity_.For(RoleName(role), index)));
}

std::shared_ptr<CoordinatorClient> RpcDialer::Coordinator(const std::string& address) {
  return MakeCoordinatorClient({executor_, open_, address},
                               [address, credentials = identity_.For(RoleName(Role::kChief))] {
                                 return MakeChannel(address, credentials);
                               });
}

}  // namespace divvy
