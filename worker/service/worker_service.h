// The gRPC service of a worker.
#ifndef DIVVY_WORKER_SERVICE_WORKER_SERVICE_H_
#define DIVVY_WORKER_SERVICE_WORKER_SERVICE_H_

#include "base/once_set.h"
#include "proto/divvy.grpc.pb.h"
#include "rpc/unary_handler.h"
#include "worker/core/worker_core.h"

namespace divvy {

// Decodes requests, calls the core, and encodes replies. It decides nothing. A call that arrives
// before the core has been started fails with NOT_READY. Thread-safe.
class WorkerService : public v1::Worker::CallbackService {
 public:
  // REQUIRES: `core` and `executor` outlive the server that this is registered with.
  WorkerService(const OnceSet<WorkerCore>& core, Executor& executor)
      : core_(core), executor_(executor) {}

  DIVVY_WORKER_CALLS(DIVVY_HANDLE_UNARY)
  grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* Steps(
      grpc::CallbackServerContext* context) override;

 private:
  const OnceSet<WorkerCore>& core_;
  Executor& executor_;
};

}  // namespace divvy

#endif  // DIVVY_WORKER_SERVICE_WORKER_SERVICE_H_
