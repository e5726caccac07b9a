// The clients behind the seams of cluster/clients.h, over gRPC.
#ifndef DIVVY_RPC_DIALER_H_
#define DIVVY_RPC_DIALER_H_

#include <memory>
#include <optional>
#include <string>

#include "base/executor.h"
#include "cluster/clients.h"
#include "grpcpp/security/credentials.h"
#include "rpc/credentials.h"
#include "rpc/open_calls.h"

namespace divvy {

// Makes clients whose answers come as tasks of one Executor. Every unary call has its deadline
// (unary_call.h); streams break when nothing comes that is owed (silence_watch.h, data_client.h).
// Nobody is believed who has not the certificate of the role that is dialled, and of its index
// where that is given.
//
// Thread-safe; opens nothing: a wrong address shows in the first call. Its clients may outlive it,
// and answer Cancelled then.
class RpcDialer : public Dialer {
 public:
  // REQUIRES: `executor` outlives this and the clients' last calls; `tls` has passed CheckTlsFiles.
  RpcDialer(Executor& executor, const std::optional<TlsFiles>& tls);
  ~RpcDialer() override;  // Close()
  // Cancels what is under way, data streams among it, and blocks until the last call has given its
  // answer to the executor.
  void Close();

  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override;
  std::shared_ptr<WorkerClient> Worker(const std::string& address) override;
  std::shared_ptr<ParameterClient> ParameterServerAt(const std::string& address,
                                                     int index) override;
  std::shared_ptr<WorkerClient> WorkerAt(const std::string& address, int index) override;
  std::shared_ptr<CoordinatorClient> Coordinator(const std::string& address);

 private:
  Executor& executor_;
  const std::shared_ptr<OpenCalls> open_;
  const ChannelIdentity identity_;
};

}  // namespace divvy

#endif  // DIVVY_RPC_DIALER_H_
