#include "coordinator/service/coordinator_service.h"

#include "rpc/unary_handler.h"

namespace divvy {

grpc::ServerUnaryReactor* CoordinatorService::Register(grpc::CallbackServerContext* context,
                                                       const v1::RegisterRequest* request,
                                                       v1::RegisterReply* reply) {
  return HandleUnary("Coordinator.Register", context, core_, *request, *reply);
}

}  // namespace divvy
