#include "rpc/worker_client.h"

#include <utility>

#include "proto/divvy.grpc.pb.h"
#include "rpc/steps_client.h"

namespace divvy {
namespace {

class RpcWorkerClient : public Sends<RpcWorkerClient, WorkerClient> {
 public:
  using Async = v1::Worker::StubInterface::async_interface;
  RpcWorkerClient(CallEnvironment environment, const std::shared_ptr<grpc::Channel>& channel)
      : environment_(std::move(environment)), stub_(v1::Worker::NewStub(channel)) {}

  template <typename Request>
  void Send(Request request, ResultCallback<ReplyTo<Request>> done) {
    const auto way = WayOf(request);
    CallUnary(environment_, stub_, way.method, request, way.deadline, std::move(done));
  }
  std::shared_ptr<StreamConnection<ToWorker>> OpenSteps(
      std::shared_ptr<StreamListener<FromWorker>> listener) override {
    return OpenStepsStream(environment_, stub_, std::move(listener));
  }

 private:
  DIVVY_WORKER_CALLS(DIVVY_UNARY_WAY)

  const CallEnvironment environment_;
  const std::shared_ptr<v1::Worker::Stub> stub_;
};

}  // namespace

std::shared_ptr<WorkerClient> MakeWorkerClient(CallEnvironment environment,
                                               const std::shared_ptr<grpc::Channel>& channel) {
  return std::make_shared<RpcWorkerClient>(std::move(environment), channel);
}

}  // namespace divvy
