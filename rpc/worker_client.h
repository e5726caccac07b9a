// The client of a worker, over gRPC.
#ifndef DIVVY_RPC_WORKER_CLIENT_H_
#define DIVVY_RPC_WORKER_CLIENT_H_

#include <memory>

#include "grpcpp/channel.h"
#include "protocol/clients.h"
#include "rpc/unary_call.h"

namespace divvy {

// Implements WorkerClient of protocol/clients.h. Thread-safe; no call blocks, and each answer comes
// as a task of the environment's Executor. The client may be destroyed while its calls are open:
// they still answer.
std::shared_ptr<WorkerClient> MakeWorkerClient(CallEnvironment environment,
                                               const std::shared_ptr<grpc::Channel>& channel);

}  // namespace divvy

#endif  // DIVVY_RPC_WORKER_CLIENT_H_
