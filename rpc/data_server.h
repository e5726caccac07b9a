// The data streams at a parameter server: /divvy.v1.ParameterServerData/Pull and /Commit
// (proto/divvy.proto).
#ifndef DIVVY_RPC_DATA_SERVER_H_
#define DIVVY_RPC_DATA_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/executor.h"
#include "cluster/clients.h"
#include "grpcpp/generic/async_generic_service.h"
#include "rpc/server.h"

namespace divvy {

// What memory is for; each has a queue of its own.
enum class DataMemory : uint8_t {
  kRequest,  // payload that arrives
  kReply,    // payload that is made and sent
};

// Memory that a transfer needs.
struct DataClaim {
  DataMemory of = DataMemory::kRequest;
  int64_t bytes = 0;
  // Of the header, where it names many shards; no claim is refused for it.
  int64_t overhead = 0;
  // The task of the peer's certificate, or without certificates its session: who holds memory for
  // long shall hold up itself alone.
  std::string owner;
};

enum class DataMethod : uint8_t { kPull, kCommit };

// Whom the streams serve. Thread-safe, no method blocks; `done` and `granted` are called once, or
// dropped where the task ends.
class DataHandler : public Calls<PullRequest, CommitRequest> {
 public:
  // Whether a request with this fence may come at all. Asked before anything is reserved for it; an
  // error is the answer. `worker`: the index in the caller's certificate, where it is a worker's.
  virtual absl::Status Admit(DataMethod method, const Fence& fence, std::optional<int> worker) = 0;
  // What the reply will take, to be reserved before Pull is called. 0: nothing, or it will be
  // refused.
  virtual int64_t ReplyBytes(const PullRequest& request) = 0;
  // Memory for a payload, granted first come, first served; an error: it never will be. Returns
  // what Release is given: once, granted or not; what waits then is not granted any more.
  virtual uint64_t Reserve(DataClaim claim, std::function<void(absl::Status)> granted) = 0;
  virtual void Release(DataMemory of, uint64_t ticket) = 0;
};

struct DataServerOptions {
  // Each with a completion queue of its own; 0: one for each two cores, the others apply what has
  // arrived.
  int threads = 0;
  // A peer that owes payload, or does not take what is sent to it, for so long: its stream is
  // broken. A peer that waits is told so four times as often: its own patience must not be much
  // shorter.
  absl::Duration silence = absl::Seconds(10);
  // bytes of payload a second: who sends less has sent nothing
  int64_t least_rate = 64 << 10;
};

struct DataEnvironment;

// A stream takes its transfers one after another and answers them in any order. It reads no further
// while two of them are not answered, or while the payload of one has no memory yet: HTTP/2 then
// holds the sender, who is told that it waits, and memory is bounded by what is reserved. A pull is
// handed on when there is memory for its reply, which is given back when the reply is sent.
//
//   not admitted, too large, or makes no sense             the reply says so (INVALID ...), what
//                                                          comes of its payload is dropped, the
//                                                          stream goes on
//   session 0, of another role than the chief              the same, with NOT_AUTHORIZED
//   bytes that are no message, one that does not follow,
//   or one of payload that has none                        the stream ends with INVALID
//   another method                                         UNIMPLEMENTED
//   a certificate that may not                             NOT_AUTHORIZED
//
// A stream that breaks gives the reservation of what was arriving back; what had arrived is carried
// out, its answer dropped. Thread-safe. As GenericServiceHook, nothing blocks but Shutdown.
class DataServer : public GenericServiceHook {
 public:
  // REQUIRES: `handler` lives until Shutdown has returned; not longer.
  explicit DataServer(DataHandler& handler, DataServerOptions options = {});
  ~DataServer() override;  // Shutdown()

  void Register(grpc::ServerBuilder& builder) override;
  void Start() override;
  void Shutdown() override;

 private:
  class Queue;

  const std::shared_ptr<DataEnvironment> environment_;
  grpc::AsyncGenericService service_;
  std::vector<std::unique_ptr<Queue>> queues_;
  ThreadPoolExecutor executor_;  // the threads of the queues, and the timers
};

}  // namespace divvy

#endif  // DIVVY_RPC_DATA_SERVER_H_
