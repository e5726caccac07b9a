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
#include "grpcpp/generic/async_generic_service.h"
#include "protocol/clients.h"
#include "rpc/server.h"

namespace divvy {

// The purposes of memory. Each purpose has its own queue of claims.
enum class DataMemory : uint8_t {
  kRequest,  // payload that arrives
  kReply,    // payload that is produced and sent
};

// The memory that a transfer needs.
struct DataClaim {
  DataMemory of = DataMemory::kRequest;
  // The payload, in bytes.
  int64_t bytes = 0;
  // The memory of a header that names many shards, in bytes. No claim is refused because of it.
  int64_t overhead = 0;
  // The task in the peer's certificate, or the session if there are no certificates. Claims are
  // accounted by owner, so that a peer that holds memory for long delays only itself.
  std::string owner;
};

enum class DataMethod : uint8_t { kPull, kCommit };

// How a request was answered.
struct DataOutcome {
  DataMethod method = DataMethod::kPull;
  // Of the answer.
  absl::Status status = {};
  // The commit had been applied before.
  bool duplicate = false;
  // The values of a commit, or of the reply to a pull. A dense shard counts its rows.
  int64_t bytes = 0, rows = 0;
  // From the whole request until its answer was known; 0 if it was refused before it was whole.
  absl::Duration took = {};
  // The entry of a commit, or the step that pulls if the request says so.
  EntryId entry = {};
  SessionId session = {};
};

// The object that the streams call. Thread-safe; no method blocks. `done` and `granted` are called
// once, or dropped when the task ends.
class DataHandler : public Calls<PullRequest, CommitRequest> {
 public:
  // Called once for each request that is answered, for statistics. Must not block.
  virtual void OnAnswered(const DataOutcome& outcome) {}
  // Whether a request with this fence is acceptable. Called before anything is reserved for the
  // request. An error is sent as the answer. `worker` is the index in the caller's certificate if
  // that is a worker's.
  virtual absl::Status Admit(DataMethod method, const Fence& fence, std::optional<int> worker) = 0;
  // The size of the reply in bytes, which is reserved before Pull is called. 0: the reply needs no
  // memory, or the request will be refused.
  virtual int64_t ReplyBytes(const PullRequest& request) = 0;
  // Reserves memory for a payload, first come, first served. Calls `granted` with OK when there is
  // memory, or with an error if there never will be. Returns a ticket for Release.
  virtual uint64_t Reserve(DataClaim claim, std::function<void(absl::Status)> granted) = 0;
  // Gives the memory back. Called once for each ticket, whether or not the memory was granted. A
  // claim that is released while it waits is never granted.
  virtual void Release(DataMemory of, uint64_t ticket) = 0;
};

struct DataServerOptions {
  // Threads, each with its own completion queue. 0: one for every two cores, since the other cores
  // apply what has arrived.
  int threads = 0;
  // A stream breaks if its peer owes payload, or does not read what is sent to it, for this long. A
  // peer whose request waits is told so four times in this time, so the peer's own limit must not
  // be much shorter.
  absl::Duration silence = absl::Seconds(10);
  // Bytes of payload a second. A peer that owes payload and sends less counts as having sent
  // nothing.
  int64_t least_rate = 64 << 10;
  // Whether payloads may lie in memory of a client that runs on this machine.
  bool shares_memory = true;
};

struct DataEnvironment;

// The server side of the data streams. A stream receives its transfers one after another and
// answers them in any order. It stops reading while two transfers are unanswered, or while the
// payload of one has no memory yet. HTTP/2 flow control then stops the sender, the sender is told
// that its request waits, and memory is bounded by what is reserved. A pull is passed to the
// handler when there is memory for its reply. That memory is released when the reply has been sent.
//
//   a request that is not admitted, too large or invalid   the reply has the error (INVALID ...),
//                                                          the rest of the payload is dropped, the
//                                                          stream continues
//   session 0 from another role than the chief             the same, with NOT_AUTHORIZED
//   bytes that are no message, a message out of order,
//   or a payload message without payload                   the stream ends with INVALID
//   an unknown method                                      UNIMPLEMENTED
//   a certificate that may not make the call               NOT_AUTHORIZED
//
// A client of this machine may offer shared memory (proto/divvy.proto, "Data streams"). The payload
// of a request that names a region of it lies there. Memory is reserved only for what is copied:
// rows, bools, and small tensors. A region that is not within the memory is INVALID, and the stream
// continues.
//
// When a stream breaks, the reservation of an incomplete transfer is released. Complete transfers
// are still carried out, and their answers are dropped. Thread-safe. As GenericServiceHook
// requires, only Shutdown blocks.
class DataServer : public GenericServiceHook {
 public:
  // REQUIRES: `handler` lives until Shutdown has returned. The handler is not used after that, even
  // by late answers.
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
