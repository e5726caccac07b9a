// The coordinator's call, as gRPC delivers it.
#ifndef DIVVY_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_
#define DIVVY_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_

#include "base/late.h"
#include "coordinator/core/coordinator_core.h"
#include "proto/divvy.grpc.pb.h"

namespace divvy {

// Decodes, calls the core, encodes; decides nothing. A call that comes before the core is there
// answers NOT_READY.
class CoordinatorService : public v1::Coordinator::CallbackService {
 public:
  // REQUIRES: `core` outlives the server that this is registered with.
  explicit CoordinatorService(const Late<CoordinatorCore>& core) : core_(core) {}

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterReply* reply) override;

 private:
  const Late<CoordinatorCore>& core_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_SERVICE_COORDINATOR_SERVICE_H_
