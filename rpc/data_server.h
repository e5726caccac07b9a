// The data streams at a parameter server: /divvy.v1.ParameterServerData/Pull and /Commit (proto/divvy.proto).
#ifndef DIVVY_RPC_DATA_SERVER_H_
#define DIVVY_RPC_DATA_SERVER_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "cluster/clients.h"
#include "grpcpp/generic/async_generic_service.h"
#include "rpc/server.h"

namespace divvy {

// Whom the streams serve. Thread-safe, no method blocks; `done` is called exactly once, or dropped where the task ends.
class DataHandler {
 public:
  virtual ~DataHandler() = default;
  virtual void Pull(PullRequest request, Callback<PullReply> done) = 0;
  virtual void Commit(CommitRequest request, Callback<CommitReply> done) = 0;
  // Memory for the payload of a commit, granted first come, first served; an error: it never will be. Released once, granted or not.
  virtual uint64_t Reserve(int64_t bytes, std::function<void(absl::Status)> granted) = 0;
  virtual void Release(uint64_t ticket) = 0;
};

// A stream takes its transfers one after another, and reads no further while two of them are not answered, or while the payload of a commit has no memory yet:
// HTTP/2 then holds the sender. What cannot be decoded ends the stream with INVALID; a refusal by the handler rides in the reply. Anything but the two methods is
// UNIMPLEMENTED. A stream that breaks gives its reservations back.
class DataServer : public GenericServiceHook, private grpc::CallbackGenericService {
 public:
  // REQUIRES: `handler` outlives the server.
  explicit DataServer(DataHandler& handler) : handler_(handler) {}

  void Register(grpc::ServerBuilder& builder) override;
  void Start() override {}
  void Shutdown() override {}

 private:
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* context) override;

  DataHandler& handler_;
};

}  // namespace divvy

#endif  // DIVVY_RPC_DATA_SERVER_H_
