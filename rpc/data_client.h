// The data streams at their callers: Pull and Commit of a ParameterClient.
#ifndef DIVVY_RPC_DATA_CLIENT_H_
#define DIVVY_RPC_DATA_CLIENT_H_

#include <memory>

#include "absl/time/time.h"
#include "base/executor.h"
#include "base/mutex.h"
#include "cluster/clients.h"
#include "grpcpp/channel.h"

namespace divvy {

struct DataClientOptions {
  absl::Duration silence = absl::Seconds(10);   // a stream that owes an answer and says nothing for so long is broken
  int outstanding = 2;                          // transfers under way on a stream; others wait for their turn
};

class DataStream;
class Exchange;

// One stream of each kind, opened by the first request, and again by the first request after one that broke. A broken stream answers every request that it has
// not answered Unavailable, or with the typed refusal it was ended for. Tensors of requests are lent until then.
// Thread-safe; never blocks. `done` is called exactly once, as a task of the executor. Give the last handle away and what is under way is cancelled.
class DataClient {
 public:
  // REQUIRES: `executor` outlives the last answer.
  static std::shared_ptr<DataClient> Create(std::shared_ptr<grpc::Channel> channel, Executor& executor, DataClientOptions options);
  ~DataClient();

  void Pull(PullRequest request, Callback<PullReply> done);
  void Commit(CommitRequest request, Callback<CommitReply> done);

 private:
  DataClient(std::shared_ptr<grpc::Channel> channel, Executor& executor, DataClientOptions options)
      : channel_(std::move(channel)), executor_(executor), options_(options) {}
  // On `stream`, or on a new one where that is broken or was never opened.
  void Submit(std::shared_ptr<DataStream>& stream, const char* method, std::unique_ptr<Exchange> exchange);

  const std::shared_ptr<grpc::Channel> channel_;
  Executor& executor_;
  const DataClientOptions options_;
  Mutex mu_;
  std::shared_ptr<DataStream> pulls_ DIVVY_GUARDED_BY(mu_), commits_ DIVVY_GUARDED_BY(mu_);
};

}  // namespace divvy

#endif  // DIVVY_RPC_DATA_CLIENT_H_
