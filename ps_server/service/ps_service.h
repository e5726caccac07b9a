// The gRPC service of a parameter server: its control calls.
#ifndef DIVVY_PS_SERVER_SERVICE_PS_SERVICE_H_
#define DIVVY_PS_SERVER_SERVICE_PS_SERVICE_H_

#include "base/once_set.h"
#include "proto/divvy.grpc.pb.h"
#include "ps_server/core/parameter_server_core.h"
#include "rpc/unary_handler.h"

namespace divvy {

// Decodes requests, calls the core, and encodes replies. It decides nothing. A call that arrives
// before the core has been started fails with NOT_READY. Thread-safe.
class PsService : public v1::ParameterServer::CallbackService {
 public:
  // REQUIRES: `core` outlives the server that this is registered with.
  explicit PsService(const OnceSet<ParameterServerCore>& core) : core_(core) {}

  DIVVY_PARAMETER_SERVER_CALLS(DIVVY_HANDLE_UNARY)

 private:
  const OnceSet<ParameterServerCore>& core_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_SERVICE_PS_SERVICE_H_
