// gRPC's own log, in ours.
#ifndef DIVVY_RPC_GRPC_LOG_H_
#define DIVVY_RPC_GRPC_LOG_H_

namespace divvy {

// From now on what gRPC logs goes through base/log.h, its INFO left out. Thread-safe; more than once is fine.
void RouteGrpcLog();

}  // namespace divvy

#endif  // DIVVY_RPC_GRPC_LOG_H_
