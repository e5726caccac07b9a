#include "rpc/admin_service.h"

#include "rpc/unary_handler.h"

namespace divvy {

grpc::ServerUnaryReactor* AdminService::GetStatus(grpc::CallbackServerContext* context, const v1::GetStatusRequest*, v1::TaskStatus* reply) {
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  const absl::Status checked = CheckUnaryCall(*context, "Admin.GetStatus");
  if (checked.ok()) *reply = status_();
  reactor->Finish(ToGrpc(checked));
  return reactor;
}

}  // namespace divvy
