// A parameter server, over gRPC.
#ifndef DIVVY_RPC_PARAMETER_CLIENT_H_
#define DIVVY_RPC_PARAMETER_CLIENT_H_

#include <memory>

#include "cluster/clients.h"
#include "grpcpp/channel.h"
#include "rpc/unary_call.h"

namespace divvy {

// As cluster/clients.h says: control calls on `control`, Pull and Commit on `data` (data_client.h),
// a connection of its own, so that a Sync does not stand behind a gradient. Thread-safe; may go
// while its control calls are open.
std::shared_ptr<ParameterClient> MakeParameterClient(CallEnvironment environment,
                                                     const std::shared_ptr<grpc::Channel>& control,
                                                     const std::shared_ptr<grpc::Channel>& data);

}  // namespace divvy

#endif  // DIVVY_RPC_PARAMETER_CLIENT_H_
