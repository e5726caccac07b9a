#include "worker/service/worker_service.h"

#include "rpc/steps_server.h"

namespace divvy {

grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* WorkerService::Steps(
    grpc::CallbackServerContext* context) {
  return HandleSteps(*context, executor_, core_);
}

}  // namespace divvy
