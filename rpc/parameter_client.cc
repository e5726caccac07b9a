#include "rpc/parameter_client.h"

#include <utility>

#include "proto/divvy.grpc.pb.h"
#include "rpc/data_client.h"

namespace divvy {
namespace {

DataClientOptions DataOptions(const CallEnvironment& environment) {
  DataClientOptions options;
  options.open = environment.open;
  options.address = environment.address;
  options.shares_memory = environment.shares_memory;
  return options;
}

class RpcParameterClient : public Sends<RpcParameterClient, ParameterClient> {
 public:
  using Async = v1::ParameterServer::StubInterface::async_interface;
  RpcParameterClient(CallEnvironment environment, const std::shared_ptr<grpc::Channel>& control,
                     const std::shared_ptr<grpc::Channel>& data)
      : environment_(std::move(environment)),
        stub_(v1::ParameterServer::NewStub(control)),
        data_(DataClient::Create(data, environment_.executor, DataOptions(environment_))) {}

  template <typename Request>
  void Send(Request request, ResultCallback<ReplyTo<Request>> done) {
    const auto way = WayOf(request);
    CallUnary(environment_, stub_, way.method, request, way.deadline, std::move(done));
  }
  void Send(PullRequest request, ResultCallback<PullReply> done) {
    data_->Call(std::move(request), std::move(done));
  }
  void Send(CommitRequest request, ResultCallback<CommitReply> done) {
    data_->Call(std::move(request), std::move(done));
  }

 private:
  DIVVY_PARAMETER_SERVER_CALLS(DIVVY_UNARY_WAY)

  const CallEnvironment environment_;
  const std::shared_ptr<v1::ParameterServer::Stub> stub_;
  const std::shared_ptr<DataClient> data_;
};

}  // namespace

std::shared_ptr<ParameterClient> MakeParameterClient(CallEnvironment environment,
                                                     const std::shared_ptr<grpc::Channel>& control,
                                                     const std::shared_ptr<grpc::Channel>& data) {
  return std::make_shared<RpcParameterClient>(std::move(environment), control, data);
}

}  // namespace divvy
