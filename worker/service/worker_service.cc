#include "worker/service/worker_service.h"

#include "rpc/steps_server.h"
#include "rpc/unary_handler.h"

namespace divvy {

grpc::ServerUnaryReactor* WorkerService::Attach(grpc::CallbackServerContext* context,
                                                const v1::WorkerAttachRequest* request,
                                                v1::WorkerAttachReply* reply) {
  return HandleUnary("Worker.Attach", context, core_, *request, *reply);
}

grpc::ServerUnaryReactor* WorkerService::Shutdown(grpc::CallbackServerContext* context,
                                                  const v1::ShutdownRequest* request,
                                                  v1::ShutdownReply* reply) {
  return HandleUnary("Worker.Shutdown", context, core_, *request, *reply);
}

grpc::ServerBidiReactor<v1::ToWorkerFrame, v1::FromWorkerFrame>* WorkerService::Steps(
    grpc::CallbackServerContext* context) {
  return HandleSteps(*context, executor_, core_);
}

}  // namespace divvy
