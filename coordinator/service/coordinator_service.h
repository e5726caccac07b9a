// The coordinator's RPC, as gRPC delivers it.
#ifndef DIVVY_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_
#define DIVVY_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_

#include "base/once_set.h"
#include "coordinator/core/coordinator_core.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/unary_handler.h"

namespace divvy {

// Decodes the request, calls the core and encodes the answer. Decides nothing and never blocks. A
// request that arrives before the core exists gets NOT_READY, and the task registers again later.
// Thread-safe.
class CoordinatorService : public v1::Coordinator::CallbackService {
 public:
  // REQUIRES: `core` outlives the server that this service is registered with.
  explicit CoordinatorService(const OnceSet<CoordinatorCore>& core) : core_(core) {}

  DIVVY_COORDINATOR_CALLS(DIVVY_HANDLE_UNARY)

 private:
  const OnceSet<CoordinatorCore>& core_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_
