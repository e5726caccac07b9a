// The data streams at their callers: Pull and Commit of a ParameterClient.
#ifndef DIVVY_RPC_DATA_CLIENT_H_
#define DIVVY_RPC_DATA_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "cluster/clients.h"
#include "grpcpp/channel.h"
#include "rpc/open_calls.h"

namespace divvy {

struct DataClientOptions {
  // Of the task that is called, for the texts of failures.
  std::string address = "the parameter server";
  // something is owed, nothing moves and the server does not say that it waits: the stream is
  // broken
  absl::Duration silence = absl::Seconds(10);
  // transfers under way on a stream; others wait for their turn
  int outstanding = 2;
  // Where its streams count as open calls: CancelAndWait there, and the executor may go. Null: it
  // has its own, and its destructor does that.
  std::shared_ptr<OpenCalls> open;
};

class DataStream;
class Exchange;

// One stream of each kind, opened by the first request, and again by the first request after one
// that broke. A broken stream answers every request that it has not answered: Unavailable, or with
// the typed refusal it was ended for (NOT_AUTHORIZED ...). Whether the request was carried out is
// then not known: the cores send it again. An answer that does not fit its request breaks the
// stream.
// The tensors of a request are lent until it is answered, and until gRPC has let go of them: nobody
// writes to them any more. Thread-safe; no method blocks. `done` is called exactly once, as a task
// of the executor. Give the last handle away and what is under way is cancelled.
class DataClient {
 public:
  // REQUIRES: `executor` outlives the last answer (DataClientOptions::open).
  static std::shared_ptr<DataClient> Create(std::shared_ptr<grpc::Channel> channel,
                                            Executor& executor, DataClientOptions options);
  ~DataClient();

  void Call(PullRequest request, ResultCallback<PullReply> done);
  void Call(CommitRequest request, ResultCallback<CommitReply> done);

 private:
  DataClient(std::shared_ptr<grpc::Channel> channel, Executor& executor, DataClientOptions options);
  enum class Kind : uint8_t { kPulls, kCommits };
  // On the stream of its kind, or on a new one where that is broken or was never opened.
  void Submit(Kind kind, std::unique_ptr<Exchange> exchange);

  const std::shared_ptr<grpc::Channel> channel_;
  Executor& executor_;
  const bool has_own_calls_;
  const DataClientOptions options_;
  Mutex mu_;
  std::shared_ptr<DataStream> pulls_ DIVVY_GUARDED_BY(mu_), commits_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_RPC_DATA_CLIENT_H_
