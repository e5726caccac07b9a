#include "rpc/task_server.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

absl::string_view HostOf(absl::string_view address) { return address.substr(0, address.rfind(':')); }
absl::string_view PortOf(absl::string_view address) { return address.substr(address.rfind(':') + 1); }

std::vector<std::string> AddressesOf(const TaskOptions& options) {
  std::vector<std::string> addresses = {BindAddress(options), CoordinatorAddress(options.cluster)};
  for (const auto& [job, tasks] : TrainingCluster(options.cluster)) {
    for (const auto& [index, address] : tasks) addresses.push_back(address);
  }
  return addresses;
}

}  // namespace

std::string TaskOptions::name() const {
  return job == JobName::kChief ? std::string(JobNameText(job)) : absl::StrCat(JobNameText(job), " ", index);
}

std::string BindAddress(const TaskOptions& options) {
  if (!options.bind_address.empty()) return options.bind_address;
  const std::string own = OwnAddress(options.cluster);
  if (own.empty()) return "127.0.0.1:0";
  return IsLoopback(own) ? own : absl::StrCat("[::]:", PortOf(own));
}

std::unique_ptr<ClusterResolver> ResolverOf(const ClusterConfig& cluster) {
  return TfConfigClusterResolver({}, [text = TfConfigText(cluster)] { return std::optional<std::string>(text); });
}

absl::Status CheckSecurity(const TaskOptions& options) {
  if (BindAddress(options).rfind(':') == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("--bind_address is \"", options.bind_address, "\", wanted host:port; port 0 takes a free one"));
  }
  return options.tls ? CheckTlsFiles(*options.tls) : CheckPlaintext(AddressesOf(options));
}

absl::StatusOr<std::unique_ptr<TaskServer>> TaskServer::Start(const TaskOptions& options, std::vector<grpc::Service*> services, GenericServiceHook* hook,
                                                              std::function<v1::TaskStatus()> status) {
  ServerOptions server;
  server.address = BindAddress(options);
  server.tls = options.tls;
  server.memory_bytes = options.rpc_memory_bytes;
  std::unique_ptr<TaskServer> task(new TaskServer(std::move(status)));
  services.push_back(&task->admin_);
  ASSIGN_OR_RETURN(task->server_, Server::Start(server, services, hook));
  const std::string own = OwnAddress(options.cluster);
  task->address_ = own.empty() ? absl::StrCat(HostOf(server.address), ":", task->server_->port()) : own;
  return task;
}

}  // namespace divvy
