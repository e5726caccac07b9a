// The client of Admin.GetStatus, for a task that shows others.
#ifndef DIVVY_RPC_STATUS_CLIENT_H_
#define DIVVY_RPC_STATUS_CLIENT_H_

#include <memory>
#include <utility>

#include "grpcpp/channel.h"
#include "proto/divvy.grpc.pb.h"
#include "protocol/clients.h"
#include "rpc/unary_call.h"

namespace divvy {

// Asks one task. Thread-safe.
class StatusClient {
 public:
  StatusClient(CallEnvironment environment, std::shared_ptr<grpc::Channel> channel)
      : environment_(std::move(environment)), stub_(v1::Admin::NewStub(std::move(channel))) {}

  // `done` gets the status, as a task of the executor. Errors: as CallProto. Does not block.
  void Get(ResultCallback<v1::TaskStatus> done) {
    CallProto(environment_, stub_, &v1::Admin::StubInterface::async_interface::GetStatus,
              v1::GetStatusRequest(), kCallDeadline, std::move(done));
  }

 private:
  const CallEnvironment environment_;
  const std::shared_ptr<v1::Admin::Stub> stub_;
};

}  // namespace divvy

#endif  // DIVVY_RPC_STATUS_CLIENT_H_
