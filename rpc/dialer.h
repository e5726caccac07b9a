// The clients behind the seams of cluster/clients.h, over gRPC.
#ifndef DIVVY_RPC_DIALER_H_
#define DIVVY_RPC_DIALER_H_

#include <memory>
#include <optional>
#include <string>

#include "base/executor.h"
#include "cluster/clients.h"
#include "rpc/credentials.h"
#include "rpc/open_calls.h"

namespace divvy {

// Makes clients whose answers come as tasks of one Executor. Every unary call has its deadline (unary_call.h); streams break when nothing comes that is owed.
// Thread-safe; opens nothing: a wrong address shows in the first call. Its clients may outlive it, but make no more calls then: they answer Cancelled.
class RpcDialer : public Dialer {
 public:
  // REQUIRES: `executor` outlives this.
  RpcDialer(Executor& executor, std::optional<TlsFiles> tls);
  ~RpcDialer() override;   // cancels what is under way and waits for its end: the executor may go afterwards
  // The same, earlier.
  void Close();

  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override;
  std::shared_ptr<WorkerClient> Worker(const std::string& address) override;
  std::shared_ptr<CoordinatorClient> Coordinator(const std::string& address);

 private:
  Executor& executor_;
  const std::optional<TlsFiles> tls_;
  const std::shared_ptr<OpenCalls> open_;
};

}  // namespace divvy

#endif  // DIVVY_RPC_DIALER_H_
