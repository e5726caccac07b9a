// The worker's end of a Steps stream.
#ifndef DIVVY_RPC_STEPS_SERVER_H_
#define DIVVY_RPC_STEPS_SERVER_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "base/once_set.h"
#include "grpcpp/server_context.h"
#include "proto/divvy.grpc.pb.h"
#include "protocol/clients.h"
#include "protocol/error.h"
#include "rpc/authorization.h"
#include "rpc/silence_watch.h"

namespace divvy {

// Serves one connection. Calls acceptor->Accept before it returns. The listener that Accept returns
// gets the frames on gRPC's thread that has read them, and OnBroken as a task of the executor. The
// stream ends
// - with INVALID if a frame is refused by wire/;
// - with Cancelled if nothing has arrived for `silence`, if the peer ends the stream, or if bytes
//   arrive that are not a protobuf frame.
//
// The listener gets OnBroken in each of these cases, but not after its own Close. The reactor owns
// itself until gRPC is done with it. Does not block. REQUIRES: `executor` outlives the server.
grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* ServeSteps(
    Executor& executor, const std::shared_ptr<StepsAcceptor>& acceptor,
    absl::Duration silence = kStreamSilence);
// A stream that ends at once with `why`; no acceptor sees it. The reactor owns itself.
grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* RefuseSteps(
    const absl::Status& why);

// The whole body of the service's method Steps. Refuses with NOT_AUTHORIZED if the peer's role may
// not call Worker.Steps, and with NOT_READY while there is no core. Otherwise serves the stream.
// Does not block.
//
//   return HandleSteps(*context, executor_, core_);
template <typename Core>
grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* HandleSteps(
    const grpc::CallbackServerContext& context, Executor& executor,
    const OnceSet<Core>& late_core) {
  if (const absl::Status allowed = Authorize(*context.auth_context(), "Worker.Steps");
      !allowed.ok())
    return RefuseSteps(allowed);
  const std::shared_ptr<StepsAcceptor> core = late_core.Get();
  return core == nullptr ? RefuseSteps(MakeError(
                               Reason::kNotReady,
                               "the task is starting and cannot serve a Steps stream yet: retry"))
                         : ServeSteps(executor, core);
}

}  // namespace divvy

#endif  // DIVVY_RPC_STEPS_SERVER_H_
