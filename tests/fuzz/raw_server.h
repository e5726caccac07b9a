// A server on a free port and a connection to it, for fuzzers of code behind gRPC.
#ifndef DIVVY_TESTS_FUZZ_RAW_SERVER_H_
#define DIVVY_TESTS_FUZZ_RAW_SERVER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/testing/fuzz.h"
#include "grpcpp/channel.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"
#include "rpc/channel.h"
#include "rpc/server.h"
#include "rpc/time.h"

namespace divvy::fuzz {

constexpr absl::Duration kHang = absl::Seconds(60);  // a call that takes longer counts as hanging

inline grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// Waits for the operation in flight, of which there is one. Returns its result.
inline bool Await(grpc::CompletionQueue& queue) {
  void* tag = nullptr;
  bool ok = false;
  Require(queue.AsyncNext(&tag, &ok, GrpcDeadline(kHang)) == grpc::CompletionQueue::GOT_EVENT,
          "a call hangs");
  return ok;
}

// REQUIRES: the services and the hook outlive it.
class RawServer {
 public:
  RawServer(std::vector<grpc::Service*> services, GenericServiceHook* hook) {
    ServerOptions options;
    options.address = "127.0.0.1:0";
    auto started = Server::Start(options, std::move(services), hook);
    Require(started.ok(), "the server does not start");
    server_ = *std::move(started);
    channel_ = MakeChannel(absl::StrCat("127.0.0.1:", server_->port()),
                           grpc::InsecureChannelCredentials());
    Require(channel_->WaitForConnected(GrpcDeadline(kHang)), "the server cannot be reached");
  }
  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }

 private:
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace divvy::fuzz

#endif  // DIVVY_TESTS_FUZZ_RAW_SERVER_H_
