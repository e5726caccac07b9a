// The gRPC service of a parameter server: its control calls.
#ifndef DIVVY_PS_SERVER_SERVICE_PS_SERVICE_H_
#define DIVVY_PS_SERVER_SERVICE_PS_SERVICE_H_

#include "base/once_set.h"
#include "proto/divvy.grpc.pb.h"
#include "ps_server/core/parameter_server_core.h"

namespace divvy {

// Decodes requests, calls the core, and encodes replies. It decides nothing. A call that arrives
// before the core has been started fails with NOT_READY. Thread-safe.
class PsService : public v1::ParameterServer::CallbackService {
 public:
  // REQUIRES: `core` outlives the server that this is registered with.
  explicit PsService(const OnceSet<ParameterServerCore>& core) : core_(core) {}

  grpc::ServerUnaryReactor* Attach(grpc::CallbackServerContext* context,
                                   const v1::PsAttachRequest* request,
                                   v1::PsAttachReply* reply) override;
  grpc::ServerUnaryReactor* Load(grpc::CallbackServerContext* context,
                                 const v1::LoadRequest* request, v1::LoadReply* reply) override;
  grpc::ServerUnaryReactor* Snapshot(grpc::CallbackServerContext* context,
                                     const v1::SnapshotRequest* request,
                                     v1::SnapshotReply* reply) override;
  grpc::ServerUnaryReactor* Sync(grpc::CallbackServerContext* context,
                                 const v1::SyncRequest* request, v1::SyncReply* reply) override;
  grpc::ServerUnaryReactor* CreateShards(grpc::CallbackServerContext* context,
                                         const v1::CreateShardsRequest* request,
                                         v1::LayoutReply* reply) override;
  grpc::ServerUnaryReactor* DeleteShards(grpc::CallbackServerContext* context,
                                         const v1::DeleteShardsRequest* request,
                                         v1::LayoutReply* reply) override;
  grpc::ServerUnaryReactor* Shutdown(grpc::CallbackServerContext* context,
                                     const v1::ShutdownRequest* request,
                                     v1::ShutdownReply* reply) override;

 private:
  const OnceSet<ParameterServerCore>& core_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_PS_SERVICE_H_
