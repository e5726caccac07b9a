// The one way a task serves.
#ifndef DIVVY_RPC_SERVER_H_
#define DIVVY_RPC_SERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "grpcpp/generic/async_generic_service.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"
#include "rpc/acceptor.h"
#include "rpc/credentials.h"
#include "rpc/message_limit.h"
#include "rpc/probe_server.h"

namespace divvy {

// InvalidArgument, naming `what`: no "host:port" to listen on, with a port of 0 (any that is free)
// to 65535, nor "unix:/PATH". Pure.
absl::Status CheckListenAddress(absl::string_view what, absl::string_view address);

struct ServerOptions {
  // "host:port"; port 0: a free one. Or "unix:/PATH"
  std::string address;
  // None: plaintext, on loopback only.
  std::optional<TlsFiles> tls;
  // For probes that have no certificate (probe_server.h); empty: none. Any interface.
  std::string health_address;
  // What gRPC may hold of messages under way: the only bound there is, since it counts a message's
  // size too late. At least four times max_message_bytes.
  int64_t memory_bytes = int64_t{1} << 30;
  int64_t max_message_bytes = kMaxControlMessageBytes;  // those of the data streams are smaller
  int max_metadata_bytes = 8 << 10;                     // of a call's headers
  int max_concurrent_streams = 128;                     // calls at a time on one connection
  int max_connections = 4096;  // at a time; further ones are closed at once

  // FailedPrecondition with every problem at once, naming flags; reads the certificates.
  absl::Status Validate() const;
};

// A service that is not generated: the raw streams of the data plane. Its methods are called in
// this order, each once.
class GenericServiceHook {
 public:
  virtual ~GenericServiceHook() = default;
  // Before the server starts: completion queues, the generic service.
  virtual void Register(grpc::ServerBuilder& builder) = 0;
  // After it has; left out where it could not start.
  virtual void Start() = 0;
  // The server has been shut down, or could not start: no call comes any more. Shuts down and
  // drains the completion queues; blocks until that is done. While the server shuts down they must
  // still be polled: the server waits for the calls on them.
  virtual void Shutdown() = 0;
};

// A listening gRPC server: the services given, grpc.health.v1.Health, limits against peers that ask
// for too much, and gRPC's own log in ours. One port is one server: a second process on the same
// port is refused, which gRPC's own default (SO_REUSEPORT) would let in. It goes on after the
// process was out of file descriptors (acceptor.h). Thread-safe.
class Server {
 public:
  // FailedPrecondition: the options, or an address that cannot be listened on, with the cause.
  // `hook` may be null. REQUIRES: services and hook outlive the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services,
                                                       GenericServiceHook* hook);
  ~Server();  // Shutdown(no time)

  // 0: it listens on a Unix socket
  int port() const { return main_.port; }
  // 0: no health address
  int health_port() const { return health_ == nullptr ? 0 : health_->port(); }
  // What probes are told, and the health service says of the whole task ("") and of every service
  // named so far; not serving at first.
  void SetServing(bool serving);
  // What the health service says of one service, "divvy.v1.ParameterServer".
  void SetServing(const std::string& service, bool serving);
  // Not serving from here on; calls under way may take `grace`, then they are cancelled. Blocks
  // until none is left; a second call does nothing.
  void Shutdown(absl::Duration grace);

 private:
  struct Listening {
    std::unique_ptr<grpc::Server> server;
    std::unique_ptr<Acceptor> acceptor;  // goes before the server
    int port = 0;
  };
  static absl::StatusOr<Listening> Listen(const ServerOptions& options,
                                          const std::vector<grpc::Service*>& services,
                                          GenericServiceHook* hook);
  Server(Listening main, std::unique_ptr<ProbeServer> health, GenericServiceHook* hook);

  const Listening main_;
  const std::unique_ptr<ProbeServer> health_;  // may be null
  GenericServiceHook* const hook_;
  Mutex mu_;
  bool shut_down_ DIVVY_GUARDED_BY(mu_) = false;
};

}  // namespace divvy

#endif  // DIVVY_RPC_SERVER_H_
