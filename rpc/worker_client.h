// A worker, over gRPC.
#ifndef DIVVY_RPC_WORKER_CLIENT_H_
#define DIVVY_RPC_WORKER_CLIENT_H_

#include <memory>

#include "cluster/clients.h"
#include "grpcpp/channel.h"
#include "rpc/unary_call.h"

namespace divvy {

// As cluster/clients.h says. Thread-safe; may go while its calls are open.
std::shared_ptr<WorkerClient> MakeWorkerClient(CallEnvironment environment,
                                               const std::shared_ptr<grpc::Channel>& channel);

}  // namespace divvy

#endif  // DIVVY_RPC_WORKER_CLIENT_H_
