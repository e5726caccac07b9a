// The client side of the data streams: Pull and Commit of a ParameterClient.
#ifndef DIVVY_RPC_DATA_CLIENT_H_
#define DIVVY_RPC_DATA_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "grpcpp/channel.h"
#include "protocol/clients.h"
#include "rpc/open_calls.h"

namespace divvy {

struct DataClientOptions {
  // The address of the called task, for error texts.
  std::string address = "the parameter server";
  // The stream breaks if something is owed, nothing moves for this long, and the server does not
  // say that the request waits.
  absl::Duration silence = absl::Seconds(10);
  // Transfers in flight on one stream. Others wait for their turn.
  int outstanding = 2;
  // Whether large payloads lie in shared memory, if the parameter server runs on this machine.
  bool shares_memory = true;
  // Counts the client's streams as open calls. After open->CancelAndWait() has returned, the
  // executor may be destroyed. Null: the client makes its own, and its destructor calls
  // CancelAndWait.
  std::shared_ptr<OpenCalls> open;
};

class DataStream;
class Exchange;

// Keeps one stream for pulls and one for commits. The first request of a kind opens its stream, and
// the first request after a break opens it again.
//
// A stream that breaks answers all its open requests with Unavailable, or with the typed refusal
// that ended it (NOT_AUTHORIZED ...). It is then not known whether the server carried the request
// out, so the cores send it again. An answer that does not fit its request breaks the stream.
//
// The tensors of a request are lent until the request is answered and gRPC has released them: do
// not write to them before. Thread-safe; no method blocks. Destroying the last handle cancels the
// requests in flight.
//
// If the parameter server runs on this machine and can open memory of this process, payloads of at
// least 128 KiB do not travel. A commit is copied into shared memory, within the call. The values
// of a pull lie in shared memory, and each tensor of at least 64 KiB keeps the memory of its whole
// pull. A stream whose shared memory has no room sends as if there were none.
//
// `done` is called exactly once. A reply with a payload of at most 64 KiB is handed over on gRPC's
// thread that reads the stream, every other outcome as a task of the executor. REQUIRES: `done`
// does not block, and does not destroy the last handle of a client whose DataClientOptions::open
// was null.
class DataClient {
 public:
  // Opens nothing yet. REQUIRES: `executor` outlives the last answer (DataClientOptions::open).
  static std::shared_ptr<DataClient> Create(std::shared_ptr<grpc::Channel> channel,
                                            Executor& executor, DataClientOptions options);
  ~DataClient();  // blocks if DataClientOptions::open was null

  void Call(PullRequest request, ResultCallback<PullReply> done);
  void Call(CommitRequest request, ResultCallback<CommitReply> done);

 private:
  DataClient(std::shared_ptr<grpc::Channel> channel, Executor& executor, DataClientOptions options);
  enum class Kind : uint8_t { kPulls, kCommits };
  // Submits to the stream of this kind, or to a new one if it is broken or not yet open.
  void Submit(Kind kind, std::unique_ptr<Exchange> exchange);

  std::shared_ptr<DataStream>& StreamOf(Kind kind) DIVVY_REQUIRES(mu_) {
    return kind == Kind::kPulls ? pulls_ : commits_;
  }

  const std::shared_ptr<grpc::Channel> channel_;
  Executor& executor_;
  const bool has_own_calls_;
  const DataClientOptions options_;
  Mutex mu_;
  std::shared_ptr<DataStream> pulls_ DIVVY_GUARDED_BY(mu_), commits_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_RPC_DATA_CLIENT_H_
