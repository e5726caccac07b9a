#include "rpc/server.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "cluster/task_address.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "rpc/failure_text.h"
#include "rpc/grpc_log.h"
#include "rpc/time.h"
#include "rpc/transport.h"

namespace divvy {
namespace {

constexpr int64_t kMostMessage = 256 << 20;
// The number of largest messages that fit into the memory. With fewer, calls that are half received
// would block each other.
constexpr int64_t kLeastMessages = 4;

// Answers any number of pings. gRPC 1.51 would end a connection after a number of pings, but that
// took 130 MiB of memory for the 340 KB of pings that it had read by then. Without the limit the
// pings take no memory (tools/hostile).
void TakePings(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

// Detects callers that disappeared without closing their connection, so that their calls end.
void KeepAlive(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
}

void Configure(const ServerOptions& options, grpc::ServerBuilder& builder) {
  PrepareTransport();
  grpc::EnableDefaultHealthCheckService(true);
  TakePings(builder);
  KeepAlive(builder);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // gRPC would decompress a message completely before it checks the message's size and the memory.
  // Divvy sends no compressed messages.
  builder.AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, options.max_metadata_bytes);
  grpc::ResourceQuota quota;
  quota.Resize(static_cast<size_t>(options.memory_bytes));
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
}

using Builder = grpc::ServerBuilder::experimental_type;
using Connections = grpc::experimental::ExternalConnectionAcceptor;

// gRPC closes the connection that it is given.
Acceptor::Take HandTo(std::shared_ptr<Connections> connections) {
  return [connections = std::move(connections)](Descriptor connection) {
    Connections::NewConnectionParameters parameters;
    parameters.fd = connection.Release();
    connections->HandleNewConnection(&parameters);
  };
}

absl::Status CannotListen(const std::string& address, const GrpcErrors& errors) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on ", address, ": ", ListenFailure(errors.text())));
}

void CheckAddress(absl::string_view what, const std::string& address,
                  std::vector<std::string>& problems) {
  if (const absl::Status status = CheckListenAddress(what, address); !status.ok())
    problems.push_back(std::string(status.message()));
}

}  // namespace

absl::Status CheckListenAddress(absl::string_view what, absl::string_view address) {
  if (SocketPathOf(address)) {
    const absl::StatusOr<std::string> socket = NormalizeAddress(address);
    return socket.ok() ? absl::OkStatus()
                       : absl::InvalidArgumentError(absl::StrCat(
                             what, " is \"", address, "\": ", socket.status().message()));
  }
  const size_t colon = address.rfind(':');
  const absl::string_view port = colon == address.npos ? "" : address.substr(colon + 1);
  // A port above 65535 would be truncated to another port.
  int number = -1;
  const bool is_number = !port.empty() &&
                         std::all_of(port.begin(), port.end(), absl::ascii_isdigit) &&
                         absl::SimpleAtoi(port, &number) && number <= 65'535;
  if (is_number) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      what, " is \"", address,
      "\", wanted host:port with a port of 0 (any that is free) to 65535, or unix:/PATH"));
}

absl::Status ServerOptions::Validate() const {
  std::vector<std::string> problems;
  CheckAddress("the address to listen on", address, problems);
  if (!health_address.empty()) CheckAddress("--health_address", health_address, problems);
  if (max_message_bytes < 1 || max_message_bytes > kMostMessage)
    problems.push_back(
        absl::StrCat("max_message_bytes is ", max_message_bytes, ", wanted 1 to 256 MiB"));
  else if (memory_bytes < kLeastMessages * max_message_bytes)
    problems.push_back(absl::StrCat("--rpc_memory_bytes is ", memory_bytes, ", wanted at least ",
                                    kLeastMessages * max_message_bytes, ": the memory of ",
                                    kLeastMessages, " of the largest messages"));
  if (max_metadata_bytes < 1)
    problems.push_back(
        absl::StrCat("max_metadata_bytes is ", max_metadata_bytes, ", wanted at least 1"));
  if (max_concurrent_streams < 1)
    problems.push_back(
        absl::StrCat("max_concurrent_streams is ", max_concurrent_streams, ", wanted at least 1"));
  if (max_connections < 1)
    problems.push_back(
        absl::StrCat("--max_connections is ", max_connections, ", wanted at least 1"));
  const absl::Status security = tls ? CheckTlsFiles(*tls) : CheckPlaintext({address});
  if (!security.ok()) problems.push_back(std::string(security.message()));
  return problems.empty() ? absl::OkStatus()
                          : absl::FailedPreconditionError(absl::StrJoin(problems, "; "));
}

absl::StatusOr<Server::Listening> Server::Listen(const ServerOptions& options,
                                                 const std::vector<grpc::Service*>& services,
                                                 GenericServiceHook* hook) {
  Listening listening;
  grpc::ServerBuilder builder;
  Configure(options, builder);
  ASSIGN_OR_RETURN(ListeningSockets sockets, ListeningSockets::Open(options.address));
  listening.port = sockets.port();
  std::shared_ptr<Connections> connections = builder.experimental().AddExternalConnectionAcceptor(
      Builder::ExternalConnectionType::FROM_FD, MakeServerCredentials(options.tls));
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (hook != nullptr) hook->Register(builder);
  GrpcErrors errors;
  listening.server = builder.BuildAndStart();
  if (listening.server == nullptr) {
    if (hook != nullptr) hook->Shutdown();
    return CannotListen(options.address, errors);
  }
  if (hook != nullptr) hook->Start();
  listening.acceptor = std::make_unique<Acceptor>(std::move(sockets), options.max_connections,
                                                  HandTo(std::move(connections)));
  return listening;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                                      const std::vector<grpc::Service*>& services,
                                                      GenericServiceHook* hook) {
  RETURN_IF_ERROR(options.Validate());
  std::unique_ptr<Probes> probes;
  if (!options.health_address.empty()) {
    ASSIGN_OR_RETURN(probes, ServeProbes(options.health_address));
  }
  ASSIGN_OR_RETURN(Listening main, Listen(options, services, hook));
  return std::unique_ptr<Server>(new Server(std::move(main), std::move(probes), hook));
}

absl::StatusOr<std::unique_ptr<Server::Probes>> Server::ServeProbes(const std::string& address) {
  auto probes = std::make_unique<Probes>();
  const auto page = [&serving = probes->serving](absl::string_view) {
    return serving ? TextPage(200, "serving\n") : TextPage(503, "not serving\n");
  };
  ASSIGN_OR_RETURN(probes->server, HttpServer::Start(address, page));
  if (!IsLoopback(WithLoopback(address)))
    DIVVY_LOG(WARNING)
        << "--health_address=" << address
        << ": everybody who reaches it is told whether this task serves, and nothing else";
  return probes;
}

Server::Server(Listening main, std::unique_ptr<Probes> probes, GenericServiceHook* hook)
    : main_(std::move(main)), probes_(std::move(probes)), hook_(hook) {
  SetServing(false);
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

void Server::SetServing(bool serving) {
  main_.server->GetHealthCheckService()->SetServingStatus(serving);
  if (probes_ != nullptr) probes_->serving = serving;
}

void Server::SetServing(const std::string& service, bool serving) {
  main_.server->GetHealthCheckService()->SetServingStatus(service, serving);
}

void Server::Shutdown(absl::Duration grace) {
  {
    MutexLock lock(mu_);
    if (std::exchange(shut_down_, true)) return;
  }
  SetServing(false);
  main_.acceptor->Stop();
  main_.server->Shutdown(GrpcDeadline(grace));
  if (hook_ != nullptr) hook_->Shutdown();
}

}  // namespace divvy
