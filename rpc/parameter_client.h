// The client of a parameter server, over gRPC.
#ifndef DIVVY_RPC_PARAMETER_CLIENT_H_
#define DIVVY_RPC_PARAMETER_CLIENT_H_

#include <memory>

#include "grpcpp/channel.h"
#include "protocol/clients.h"
#include "rpc/unary_call.h"

namespace divvy {

// Implements ParameterClient of protocol/clients.h. Control calls use `control`; Pull and Commit
// use `data` (data_client.h). The two are separate connections, so that a Sync does not wait behind
// a gradient. Thread-safe; no call blocks. Answers come as tasks of the environment's Executor, but
// for small replies of Pull and Commit (data_client.h). The client may be destroyed while control
// calls are open: they still answer. Destroying it cancels the pulls and commits in flight.
std::shared_ptr<ParameterClient> MakeParameterClient(CallEnvironment environment,
                                                     const std::shared_ptr<grpc::Channel>& control,
                                                     const std::shared_ptr<grpc::Channel>& data);

}  // namespace divvy

#endif  // DIVVY_RPC_PARAMETER_CLIENT_H_
