#include "ps_server/service/ps_service.h"

#include "rpc/unary_handler.h"

namespace divvy {

using Reactor = grpc::ServerUnaryReactor;
using Context = grpc::CallbackServerContext;

Reactor* PsService::Attach(Context* context, const v1::PsAttachRequest* request,
                           v1::PsAttachReply* reply) {
  return HandleUnary("ParameterServer.Attach", context, core_, *request, *reply);
}
Reactor* PsService::Load(Context* context, const v1::LoadRequest* request, v1::LoadReply* reply) {
  return HandleUnary("ParameterServer.Load", context, core_, *request, *reply);
}
Reactor* PsService::Snapshot(Context* context, const v1::SnapshotRequest* request,
                             v1::SnapshotReply* reply) {
  return HandleUnary("ParameterServer.Snapshot", context, core_, *request, *reply);
}
Reactor* PsService::Sync(Context* context, const v1::SyncRequest* request, v1::SyncReply* reply) {
  return HandleUnary("ParameterServer.Sync", context, core_, *request, *reply);
}
Reactor* PsService::CreateShards(Context* context, const v1::CreateShardsRequest* request,
                                 v1::LayoutReply* reply) {
  return HandleUnary("ParameterServer.CreateShards", context, core_, *request, *reply);
}
Reactor* PsService::DeleteShards(Context* context, const v1::DeleteShardsRequest* request,
                                 v1::LayoutReply* reply) {
  return HandleUnary("ParameterServer.DeleteShards", context, core_, *request, *reply);
}
Reactor* PsService::Shutdown(Context* context, const v1::ShutdownRequest* request,
                             v1::ShutdownReply* reply) {
  return HandleUnary("ParameterServer.Shutdown", context, core_, *request, *reply);
}

}  // namespace divvy
