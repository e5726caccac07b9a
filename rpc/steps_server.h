// The worker's end of a Steps stream.
#ifndef DIVVY_RPC_STEPS_SERVER_H_
#define DIVVY_RPC_STEPS_SERVER_H_

#include <memory>

#include "base/executor.h"
#include "cluster/clients.h"
#include "proto/divvy.grpc.pb.h"

namespace divvy {

// Serves one connection: `acceptor` is told of it, and is given what comes by tasks of the executor, in order. A frame that cannot be decoded ends the stream
// with INVALID. The reactor owns itself until gRPC is done with it. REQUIRES: `executor` outlives the server.
grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* ServeSteps(Executor& executor, const std::shared_ptr<StepsAcceptor>& acceptor);
// One that is refused at once.
grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* RefuseSteps(const absl::Status& why);

}  // namespace divvy

#endif  // DIVVY_RPC_STEPS_SERVER_H_
