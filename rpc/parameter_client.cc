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
  return options;
}

class RpcParameterClient : public ParameterClient {
 public:
  using Async = v1::ParameterServer::StubInterface::async_interface;
  RpcParameterClient(CallEnvironment environment, const std::shared_ptr<grpc::Channel>& control,
                     const std::shared_ptr<grpc::Channel>& data)
      : environment_(std::move(environment)),
        stub_(v1::ParameterServer::NewStub(control)),
        data_(DataClient::Create(data, environment_.executor, DataOptions(environment_))) {}

  void Attach(PsAttachRequest request, ResultCallback<PsAttachReply> done) override {
    Call(&Async::Attach, request, kAttachDeadline, std::move(done));
  }
  void Load(LoadRequest request, ResultCallback<LoadReply> done) override {
    Call(&Async::Load, request, kLoadDeadline, std::move(done));
  }
  void Sync(SyncRequest request, ResultCallback<SyncReply> done) override {
    Call(&Async::Sync, request, kSyncDeadline, std::move(done));
  }
  void Snapshot(SnapshotRequest request, ResultCallback<SnapshotReply> done) override {
    Call(&Async::Snapshot, request, kCallDeadline, std::move(done));
  }
  void CreateShards(CreateShardsRequest request, ResultCallback<LayoutReply> done) override {
    Call(&Async::CreateShards, request, kCreateDeadline, std::move(done));
  }
  void DeleteShards(DeleteShardsRequest request, ResultCallback<LayoutReply> done) override {
    Call(&Async::DeleteShards, request, kCallDeadline, std::move(done));
  }
  void Shutdown(ShutdownRequest request, ResultCallback<ShutdownReply> done) override {
    Call(&Async::Shutdown, request, kCallDeadline, std::move(done));
  }
  void Pull(PullRequest request, ResultCallback<PullReply> done) override {
    data_->Pull(std::move(request), std::move(done));
  }
  void Commit(CommitRequest request, ResultCallback<CommitReply> done) override {
    data_->Commit(std::move(request), std::move(done));
  }

 private:
  template <typename ProtoRequest, typename ProtoReply, typename Request, typename Reply>
  void Call(void (Async::*method)(grpc::ClientContext*, const ProtoRequest*, ProtoReply*,
                                  std::function<void(grpc::Status)>),
            const Request& request, absl::Duration deadline, ResultCallback<Reply> done) {
    CallUnary(environment_, stub_, method, request, deadline, std::move(done));
  }

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
