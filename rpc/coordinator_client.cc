#include "rpc/coordinator_client.h"

#include <utility>

#include "proto/divvy.grpc.pb.h"

namespace divvy {
namespace {

class RpcCoordinatorClient : public CoordinatorClient {
 public:
  RpcCoordinatorClient(CallEnvironment environment, const std::shared_ptr<grpc::Channel>& channel)
      : environment_(std::move(environment)), stub_(v1::Coordinator::NewStub(channel)) {}

  void Register(RegisterRequest request, ResultCallback<RegisterReply> done) override {
    CallUnary(environment_, stub_, &v1::Coordinator::StubInterface::async_interface::Register, request, kCallDeadline, std::move(done));
  }

 private:
  const CallEnvironment environment_;
  const std::shared_ptr<v1::Coordinator::Stub> stub_;
};

}  // namespace

std::shared_ptr<CoordinatorClient> MakeCoordinatorClient(CallEnvironment environment, const std::shared_ptr<grpc::Channel>& channel) {
  return std::make_shared<RpcCoordinatorClient>(std::move(environment), channel);
}

}  // namespace divvy
