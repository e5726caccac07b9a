// The worker's end of a Steps stream.
#ifndef DIVVY_RPC_STEPS_SERVER_H_
#define DIVVY_RPC_STEPS_SERVER_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/late.h"
#include "cluster/clients.h"
#include "cluster/error.h"
#include "grpcpp/server_context.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/authorization.h"
#include "rpc/silence_watch.h"

namespace divvy {

// Serves one connection: `acceptor` is told of it, here and now, and is given what comes by tasks
// of the executor, in order. The stream ends with INVALID at a frame that cannot be decoded, and
// with Cancelled when nothing has come for `silence`; OnBroken is told in every case but Close. The
// reactor owns itself until gRPC is done with it. REQUIRES: `executor` outlives the server.
grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* ServeSteps(
    Executor& executor, const std::shared_ptr<StepsAcceptor>& acceptor,
    absl::Duration silence = kStreamSilence);
// One that is refused at once.
grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* RefuseSteps(
    const absl::Status& why);

// The whole of a service's method: refused where the peer's role may not call it, or (NOT_READY)
// while there is no core; else served.
//
//   return HandleSteps(*context, executor_, core_);
template <typename Core>
grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* HandleSteps(
    const grpc::CallbackServerContext& context, Executor& executor, const Late<Core>& late_core) {
  if (const absl::Status allowed = Authorize(*context.auth_context(), "Worker.Steps");
      !allowed.ok())
    return RefuseSteps(allowed);
  const std::shared_ptr<StepsAcceptor> core = late_core.Get();
  return core == nullptr ? RefuseSteps(MakeError(Reason::kNotReady, "the task is starting"))
                         : ServeSteps(executor, core);
}

}  // namespace divvy

#endif  // DIVVY_RPC_STEPS_SERVER_H_
