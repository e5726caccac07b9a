// Makes the clients of protocol/clients.h, over gRPC.
#ifndef DIVVY_RPC_DIALER_H_
#define DIVVY_RPC_DIALER_H_

#include <memory>
#include <optional>
#include <string>

#include "base/executor.h"
#include "grpcpp/security/credentials.h"
#include "protocol/clients.h"
#include "protocol/role.h"
#include "rpc/credentials.h"
#include "rpc/open_calls.h"
#include "rpc/status_client.h"

namespace divvy {

// Makes clients whose answers come as tasks of one Executor, or on gRPC's threads where
// protocol/clients.h and data_client.h say so. Every unary call has a deadline
// (unary_call.h). A stream breaks if the peer owes data and sends none in time (silence_watch.h,
// data_client.h). With TLS, a client accepts a server only if its certificate names the role that
// is dialled, and also the index if one is given. Without TLS nothing is checked.
//
// Thread-safe. Making a client opens no connection, so a wrong address shows in the first call. The
// clients may outlive the dialer; their calls then return Cancelled.
class RpcDialer : public Dialer {
 public:
  // No `tls`: plaintext. `shares_memory`: see DataClientOptions. REQUIRES: `executor` outlives this
  // object and the clients' last calls; `tls` has passed CheckTlsFiles.
  RpcDialer(Executor& executor, const std::optional<TlsFiles>& tls, bool shares_memory = true);
  ~RpcDialer() override;  // Close()
  // Cancels all calls in flight, including data streams, and blocks until the last call has posted
  // its answer to the executor. Later calls of the clients return Cancelled.
  void Close();

  // Clients of any task of the role at `address` ("host:port" or "unix:/PATH").
  std::shared_ptr<ParameterClient> ParameterServer(const std::string& address) override;
  std::shared_ptr<WorkerClient> Worker(const std::string& address) override;
  // Clients of one task: the server must be this task of the role.
  std::shared_ptr<ParameterClient> ParameterServerAt(const std::string& address,
                                                     int index) override;
  std::shared_ptr<WorkerClient> WorkerAt(const std::string& address, int index) override;
  std::shared_ptr<CoordinatorClient> Coordinator(const std::string& address);
  // Asks this task for its status.
  std::shared_ptr<StatusClient> StatusOf(Role role, int index, const std::string& address);

 private:
  Executor& executor_;
  const std::shared_ptr<OpenCalls> open_;
  const ChannelIdentity identity_;
  const bool shares_memory_;
};

}  // namespace divvy

#endif  // DIVVY_RPC_DIALER_H_
