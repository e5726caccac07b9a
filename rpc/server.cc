#include "rpc/server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"
#include "rpc/grpc_log.h"
#include "rpc/time.h"

namespace divvy {
namespace {

// What a peer may ask of the connection itself (reliability: a flood of pings, streams or headers costs it the connection).
void LimitPeers(grpc::ServerBuilder& builder) {
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 128);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 8 << 10);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 2);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
}

}  // namespace

absl::Status ServerOptions::Validate() const {
  std::vector<std::string> problems;
  if (address.rfind(':') == std::string::npos) problems.push_back(absl::StrCat("the address to listen on is \"", address, "\", wanted host:port"));
  if (memory_bytes < (1 << 20)) problems.push_back(absl::StrCat("--rpc_memory_bytes is ", memory_bytes, ", wanted at least 1 MiB"));
  const absl::Status security = tls ? CheckTlsFiles(*tls) : CheckPlaintext({address});
  if (!security.ok()) problems.push_back(std::string(security.message()));
  return problems.empty() ? absl::OkStatus() : absl::FailedPreconditionError(absl::StrJoin(problems, "; "));
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, const std::vector<grpc::Service*>& services, GenericServiceHook* hook) {
  RETURN_IF_ERROR(options.Validate());
  RouteGrpcLog();
  grpc::EnableDefaultHealthCheckService(true);
  grpc::ServerBuilder builder;
  LimitPeers(builder);
  grpc::ResourceQuota quota("server");
  quota.Resize(static_cast<size_t>(options.memory_bytes));
  builder.SetResourceQuota(quota);
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  int port = 0;
  builder.AddListeningPort(options.address, MakeServerCredentials(options.tls), &port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  if (hook != nullptr) hook->Register(builder);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    return absl::FailedPreconditionError(absl::StrCat("cannot listen on ", options.address, ": the port is in use, or the address is not this machine's"));
  }
  if (hook != nullptr) hook->Start();
  server->GetHealthCheckService()->SetServingStatus(false);
  return std::unique_ptr<Server>(new Server(std::move(server), port, hook));
}

Server::~Server() { Shutdown(absl::ZeroDuration()); }

void Server::SetServing(bool serving) { server_->GetHealthCheckService()->SetServingStatus(serving); }

void Server::Shutdown(absl::Duration grace) {
  if (std::exchange(shut_down_, true)) return;
  server_->GetHealthCheckService()->SetServingStatus(false);
  server_->Shutdown(GrpcDeadline(grace));
  if (hook_ != nullptr) hook_->Shutdown();
}

}  // namespace divvy
