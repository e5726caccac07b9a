#include "rpc/server.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "rpc/failure_text.h"
#include "rpc/grpc_log.h"
#include "rpc/time.h"
#include "rpc/transport.h"

namespace divvy {
namespace {

constexpr int64_t kLeastMemory = 1 << 20, kMostMessage = 256 << 20;
constexpr int64_t kProbeMemory = 16 << 20;

// What a peer may ask of the connection itself: a flood of pings costs it the connection.
void LimitPings(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
}

// Finds callers that are gone without a word, so that their calls end.
void KeepAlive(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
}

void Configure(const ServerOptions& options, grpc::ServerBuilder& builder) {
  PrepareTransport();
  grpc::EnableDefaultHealthCheckService(true);
  LimitPings(builder);
  KeepAlive(builder);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, options.max_metadata_bytes);
  grpc::ResourceQuota quota;
  quota.Resize(static_cast<size_t>(options.memory_bytes));
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
}

absl::Status CannotListen(const std::string& address, const GrpcErrors& errors) {
  return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", address, ": ", ListenFailure(errors.text())));
}

void CheckAddress(absl::string_view what, const std::string& address, std::vector<std::string>& problems) {
  if (const absl::Status status = CheckListenAddress(what, address); !status.ok()) problems.push_back(std::string(status.message()));
}

}  // namespace

absl::Status CheckListenAddress(absl::string_view what, absl::string_view address) {
  const size_t colon = address.rfind(':');
  const absl::string_view port = colon == address.npos ? "" : address.substr(colon + 1);
  int number = -1;  // a port that is too large would be taken for another one
  const bool is_number = !port.empty() && std::all_of(port.begin(), port.end(), absl::ascii_isdigit) && absl::SimpleAtoi(port, &number) && number <= 65'535;
  if (is_number || absl::StartsWith(address, "unix:")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what, " is \"", address, "\", wanted host:port with a port of 0 (any that is free) to 65535"));
}

absl::Status ServerOptions::Validate() const {
  std::vector<std::string> problems;
  CheckAddress("the address to listen on", address, problems);
  if (!health_address.empty()) CheckAddress("--health_address", health_address, problems);
  if (memory_bytes < kLeastMemory) problems.push_back(absl::StrCat("--rpc_memory_bytes is ", memory_bytes, ", wanted at least 1 MiB"));
  if (max_message_bytes < 1 || max_message_bytes > kMostMessage)
    problems.push_back(absl::StrCat("max_message_bytes is ", max_message_bytes, ", wanted 1 to 256 MiB"));
  if (max_metadata_bytes < 1) problems.push_back(absl::StrCat("max_metadata_bytes is ", max_metadata_bytes, ", wanted at least 1"));
  if (max_concurrent_streams < 1) problems.push_back(absl::StrCat("max_concurrent_streams is ", max_concurrent_streams, ", wanted at least 1"));
  const absl::Status security = tls ? CheckTlsFiles(*tls) : CheckPlaintext({address});
  if (!security.ok()) problems.push_back(std::string(security.message()));
  return problems.empty() ? absl::OkStatus() : absl::FailedPreconditionError(absl::StrJoin(problems, "; "));
}

absl::StatusOr<Server::Listening> Server::Listen(const ServerOptions& options, const std::vector<grpc::Service*>& services, GenericServiceHook* hook) {
  Listening listening;
  grpc::ServerBuilder builder;
  Configure(options, builder);
  builder.AddListeningPort(options.address, MakeServerCredentials(options.tls), &listening.port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (hook != nullptr) hook->Register(builder);
  GrpcErrors errors;
  listening.server = builder.BuildAndStart();
  if (listening.server != nullptr && listening.port != 0) {
    if (hook != nullptr) hook->Start();
    return listening;
  }
  if (hook != nullptr) hook->Shutdown();
  return CannotListen(options.address, errors);
}

absl::StatusOr<Server::Listening> Server::ListenForProbes(const ServerOptions& options) {
  Listening listening;
  if (options.health_address.empty()) return listening;
  ServerOptions small = options;
  small.memory_bytes = kProbeMemory;
  grpc::ServerBuilder builder;
  Configure(small, builder);
  builder.AddListeningPort(options.health_address, grpc::InsecureServerCredentials(), &listening.port);
  listening.fallback = std::make_unique<grpc::CallbackGenericService>();  // answers UNIMPLEMENTED; without any service of ours the health service has no thread
  builder.RegisterCallbackGenericService(listening.fallback.get());
  GrpcErrors errors;
  listening.server = builder.BuildAndStart();
  if (listening.server == nullptr || listening.port == 0) return CannotListen(options.health_address, errors);
  return listening;
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, const std::vector<grpc::Service*>& services, GenericServiceHook* hook) {
  RETURN_IF_ERROR(options.Validate());
  ASSIGN_OR_RETURN(Listening health, ListenForProbes(options));
  ASSIGN_OR_RETURN(Listening main, Listen(options, services, hook));
  return std::unique_ptr<Server>(new Server(std::move(main), std::move(health), hook));
}

Server::Server(Listening main, Listening health, GenericServiceHook* hook) : main_(std::move(main)), health_(std::move(health)), hook_(hook) {
  SetServing(false);
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

void Server::SetServing(bool serving) {
  main_.server->GetHealthCheckService()->SetServingStatus(serving);
  if (health_.server != nullptr) health_.server->GetHealthCheckService()->SetServingStatus(serving);
}

void Server::SetServing(const std::string& service, bool serving) {
  main_.server->GetHealthCheckService()->SetServingStatus(service, serving);
  if (health_.server != nullptr) health_.server->GetHealthCheckService()->SetServingStatus(service, serving);
}

void Server::Shutdown(absl::Duration grace) {
  {
    MutexLock lock(mu_);
    if (std::exchange(shut_down_, true)) return;
  }
  SetServing(false);
  main_.server->Shutdown(GrpcDeadline(grace));
  if (hook_ != nullptr) hook_->Shutdown();
  if (health_.server != nullptr) health_.server->Shutdown(GrpcDeadline(absl::ZeroDuration()));
}

}  // namespace divvy
