// The one way a task serves.
#ifndef DIVVY_RPC_SERVER_H_
#define DIVVY_RPC_SERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "rpc/credentials.h"

namespace divvy {

struct ServerOptions {
  std::string address;                       // "host:port"; port 0: a free one
  std::optional<TlsFiles> tls;               // none: plaintext, on loopback only
  int64_t memory_bytes = int64_t{1} << 30;   // what gRPC may hold of messages under way: the only bound there is, since a message limit counts too late
  int64_t max_message_bytes = 16 << 20;      // of a control message; data messages are smaller

  // InvalidArgument or FailedPrecondition with every problem at once; reads the certificates.
  absl::Status Validate() const;
};

// A service that is not generated: the raw streams of data_server.h.
class GenericServiceHook {
 public:
  virtual ~GenericServiceHook() = default;
  virtual void Register(grpc::ServerBuilder& builder) = 0;   // before the server starts
  virtual void Start() = 0;                                  // after it has
  virtual void Shutdown() = 0;                               // after the server was shut down: drains what it registered; blocks until that is done
};

// A listening gRPC server: the services given, grpc.health.v1.Health, limits against peers that ask for too much, and gRPC's own log in ours. One port is one
// server: a second process on the same port is refused (SO_REUSEPORT is off). Thread-safe.
class Server {
 public:
  // FailedPrecondition: the options, or the address cannot be listened on, with the cause. `hook` may be null. REQUIRES: services and hook outlive the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, const std::vector<grpc::Service*>& services, GenericServiceHook* hook);
  ~Server();   // Shutdown(no time)

  int port() const { return port_; }
  // What the health service says of the whole task; not serving at first.
  void SetServing(bool serving);
  // Not serving from here on; calls under way may take `grace`, then they are cancelled. Blocks until none is left. Once is enough.
  void Shutdown(absl::Duration grace);

 private:
  Server(std::unique_ptr<grpc::Server> server, int port, GenericServiceHook* hook) : server_(std::move(server)), port_(port), hook_(hook) {}

  std::unique_ptr<grpc::Server> server_;
  const int port_;
  GenericServiceHook* const hook_;
  bool shut_down_ = false;
};

}  // namespace divvy

#endif  // DIVVY_RPC_SERVER_H_
