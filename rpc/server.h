// The gRPC server of a task.
#ifndef DIVVY_RPC_SERVER_H_
#define DIVVY_RPC_SERVER_H_

#include <atomic>
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
#include "rpc/http_server.h"
#include "rpc/message_limit.h"

namespace divvy {

// Checks an address to listen on: "host:port" with a port from 0 (any free port) to 65535, or
// "unix:/PATH". InvalidArgument otherwise; the text names `what`. Pure.
absl::Status CheckListenAddress(absl::string_view what, absl::string_view address);

struct ServerOptions {
  // "host:port", where port 0 means any free port, or "unix:/PATH".
  std::string address;
  // None: plaintext, on loopback only.
  std::optional<TlsFiles> tls;
  // "host:port" for probes that have no certificate (http_server.h): every path gives 200 "serving"
  // or 503 "not serving", and nothing else is told. Empty: no probes are served. Any interface is
  // allowed, also without TLS.
  std::string health_address;
  // The memory that gRPC may use for messages in flight. max_message_bytes alone bounds nothing,
  // because gRPC compares a message with it after it has read the message. At least four times
  // max_message_bytes.
  int64_t memory_bytes = int64_t{1} << 30;
  // The largest message of a call, 1 byte to 256 MiB. Messages of data streams are smaller.
  int64_t max_message_bytes = kMaxControlMessageBytes;
  // The size limit of a call's headers.
  int max_metadata_bytes = 8 << 10;
  // Concurrent calls on one connection.
  int max_concurrent_streams = 128;
  // Concurrent connections; further ones are closed at once.
  int max_connections = 4096;

  // FailedPrecondition with every problem at once, naming the flags to change. Reads the
  // certificate files, so it blocks on the disk.
  absl::Status Validate() const;
};

// A service without generated code: the raw streams of the data plane. A server calls the methods
// in this order, each at most once. It calls none of them if it cannot open its address.
class GenericServiceHook {
 public:
  virtual ~GenericServiceHook() = default;
  // Called before the server starts. Adds completion queues and the generic service.
  virtual void Register(grpc::ServerBuilder& builder) = 0;
  // Called after the server has started; not called if it could not start.
  virtual void Start() = 0;
  // Called when the server has been shut down or could not start: no more calls arrive. Shuts down
  // and drains the completion queues, and blocks until that is done. The queues must still be
  // polled while the server shuts down, because the server waits for the calls on them.
  virtual void Shutdown() = 0;
};

// A listening gRPC server. It serves the given services and grpc.health.v1.Health, limits what
// peers may use, and routes gRPC's log into ours. A port belongs to one server: a second process
// that listens on it is refused, which gRPC's own default (SO_REUSEPORT) would allow. The server
// keeps working after the process ran out of file descriptors (acceptor.h). Thread-safe.
//
//   ServerOptions options;
//   options.address = "127.0.0.1:0";
//   ASSIGN_OR_RETURN(std::unique_ptr<Server> server, Server::Start(options, {&service}, nullptr));
//   server->SetServing(true);
class Server {
 public:
  // Starts to listen; blocks while names are looked up and files are read. FailedPrecondition with
  // the cause: the options are not valid, or the server cannot listen on an address. Retrying does
  // not help. `hook` may be null. REQUIRES: services and hook outlive the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                                       const std::vector<grpc::Service*>& services,
                                                       GenericServiceHook* hook);
  ~Server();  // Shutdown(absl::ZeroDuration())

  // The port that it listens on, also where options.address has port 0. 0: a Unix socket.
  int port() const { return main_.port; }
  // The port for probes. 0: there is no health address.
  int health_port() const { return probes_ == nullptr ? 0 : probes_->server->port(); }
  // Sets what probes see, and what the health service reports for the whole task ("") and for every
  // service named so far. A new server is not serving.
  void SetServing(bool serving);
  // Sets what the health service reports for one service, e.g. "divvy.v1.ParameterServer".
  void SetServing(const std::string& service, bool serving);
  // Reports "not serving" and takes no more connections. Calls in flight have `grace` to finish,
  // then they are cancelled. Blocks until none is left. A second call returns at once.
  void Shutdown(absl::Duration grace);

 private:
  struct Listening {
    std::unique_ptr<grpc::Server> server;
    // destroyed before the server
    std::unique_ptr<Acceptor> acceptor;
    int port = 0;
  };
  static absl::StatusOr<Listening> Listen(const ServerOptions& options,
                                          const std::vector<grpc::Service*>& services,
                                          GenericServiceHook* hook);
  // Tells probes whether the task serves.
  struct Probes {
    std::atomic<bool> serving{false};
    std::unique_ptr<HttpServer> server;
  };
  static absl::StatusOr<std::unique_ptr<Probes>> ServeProbes(const std::string& address);
  Server(Listening main, std::unique_ptr<Probes> probes, GenericServiceHook* hook);

  const Listening main_;
  const std::unique_ptr<Probes> probes_;  // may be null
  GenericServiceHook* const hook_;
  Mutex mu_;
  bool shut_down_ DIVVY_GUARDED_BY(mu_) = false;
};

}  // namespace divvy

#endif  // DIVVY_RPC_SERVER_H_
