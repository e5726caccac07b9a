#include "task/task_server.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/service_manager.h"
#include "base/status_macros.h"
#include "cluster/task_address.h"

namespace divvy {
namespace {

absl::string_view HostOf(absl::string_view address) {
  return address.substr(0, address.rfind(':'));
}
absl::string_view PortOf(absl::string_view address) {
  return address.substr(address.rfind(':') + 1);
}

std::vector<std::string> AddressesOf(const TaskOptions& options) {
  std::vector<std::string> addresses = {BindAddress(options), CoordinatorAddress(options.cluster)};
  for (const auto& [job, tasks] : TrainingCluster(options.cluster)) {
    for (const auto& [index, address] : tasks) addresses.push_back(address);
  }
  return addresses;
}

// The name of the service that a probe may ask for.
std::string ServiceOf(Role role) {
  switch (role) {
    case Role::kPs: return "divvy.v1.ParameterServer";
    case Role::kWorker: return "divvy.v1.Worker";
    default: return "divvy.v1.Coordinator";
  }
}

// Every address of the machine. A task can listen on it, but no task can dial it.
bool IsWildcard(absl::string_view address) {
  const absl::string_view host = HostOf(address);
  return host.empty() || host == "0.0.0.0" || host == "[::]" || host == "*";
}

// Leaves enough descriptors for the task's own files.
int ConnectionsWithin(const OpenFileLimit& limit, int wanted) {
  const int most =
      static_cast<int>(std::min<int64_t>(wanted, std::max<int64_t>(limit.now * 3 / 4, 1)));
  DIVVY_LOG(INFO) << "takes up to " << most << " connections; " << limit.now
                  << " files and connections may be open (ulimit -n was " << limit.before << ")";
  if (most < wanted)
    DIVVY_LOG(WARNING) << "that is fewer connections than the " << wanted
                       << " wanted: raise the limit of open files (ulimit -Hn)";
  return most;
}

// A task that the cluster does not list registers the address that it listens on. Other tasks know
// it only by that address.
absl::Status CheckOthersCanDial(const TaskOptions& options) {
  const std::string chief = CoordinatorAddress(options.cluster), bind = BindAddress(options);
  if (options.role == Role::kChief || chief.empty() || !OwnAddress(options.cluster).empty())
    return absl::OkStatus();
  if (!IsWildcard(bind) && (!IsLoopback(bind) || IsLoopback(chief))) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "the cluster does not list ", options.name(),
      ", so it registers the address that it listens on, and the coordinator at ", chief,
      " cannot dial ", bind,
      ": give --bind_address=HOST:PORT with a name or an address of this machine that it can, ",
      "or list the task in TF_CONFIG"));
}

}  // namespace

std::string TaskOptions::name() const { return TaskName(role, index); }

int MostConnections(const ClusterConfig& cluster) {
  // A task has two connections to each other task, and for a while after a restart also the old
  // ones.
  constexpr size_t kAnyway = 256, kEach = 4, kUnlisted = 4096;
  const ClusterSpec::Jobs jobs = TrainingCluster(cluster);
  if (jobs.count("worker") == 0) return kUnlisted;
  size_t tasks = 0;
  for (const auto& [job, those] : jobs) tasks += those.size();
  return static_cast<int>(kAnyway + kEach * tasks);
}

std::string BindAddress(const TaskOptions& options) {
  if (!options.bind_address.empty()) return options.bind_address;
  const std::string own = OwnAddress(options.cluster);
  if (own.empty()) return "127.0.0.1:0";
  return IsLoopback(own) ? own : absl::StrCat("[::]:", PortOf(own));
}

absl::Status CheckSecurity(const TaskOptions& options) {
  RETURN_IF_ERROR(CheckListenAddress("--bind_address", BindAddress(options)));
  if (!options.health_address.empty())
    RETURN_IF_ERROR(CheckListenAddress("--health_address", options.health_address));
  if (!options.http_address.empty()) {
    RETURN_IF_ERROR(CheckListenAddress("--http_address", options.http_address));
    if (!options.tls && !IsLoopback(WithLoopback(options.http_address)))
      return absl::InvalidArgumentError(absl::StrCat(
          "--http_address=", options.http_address,
          " is not on loopback, and everybody who reaches it would see the state of the job: give "
          "--http_address=:",
          PortOf(options.http_address), ", or certificates (--tls_cert, --tls_key, --tls_ca)"));
  }
  RETURN_IF_ERROR(CheckOthersCanDial(options));
  if (!options.tls) return CheckPlaintext(AddressesOf(options));
  return CheckTlsFiles(*options.tls,
                       {std::string(RoleName(options.role)), absl::StrCat(options.index)});
}

class TaskServer::Sampler : public std::enable_shared_from_this<TaskServer::Sampler> {
 public:
  Sampler(Executor& executor, StatusOfTask status, std::shared_ptr<StatusHistory> history)
      : executor_(executor), status_(std::move(status)), history_(std::move(history)) {}
  void Start() {
    executor_.PostAfter(StatusHistory::kEvery, [weak = weak_from_this()] {
      const auto self = weak.lock();
      if (self == nullptr) return;
      self->history_->Add(Clock::Real().Elapsed(), self->status_());
      self->Start();
    });
  }

 private:
  Executor& executor_;
  const StatusOfTask status_;
  const std::shared_ptr<StatusHistory> history_;
};

namespace {

// The status with what its history tells.
StatusOfTask Completed(StatusOfTask status, std::shared_ptr<const StatusHistory> history) {
  return [status = std::move(status), history = std::move(history)] {
    v1::TaskStatus now = status();
    history->Complete(Clock::Real().Elapsed(), now);
    return now;
  };
}

}  // namespace

TaskServer::TaskServer(const TaskOptions& options, TaskFace face)
    : admin_(Completed(face.status, history_), std::move(face.calls), std::move(face.rows),
             face.traces),
      pages_({Completed(face.status, history_), face.metrics, history_.get(),
              options.tls ? options.tls->cert : std::string(), std::move(face.traces)}) {
  if (face.executor == nullptr) return;
  sampler_ = std::make_shared<Sampler>(*face.executor, std::move(face.status), history_);
  sampler_->Start();
}

// The service manager is not asked to watch over the process (WATCHDOG=1). It would kill a
// parameter server that is stopped or swapped out, and with it values that are still there when it
// wakes.
void TaskServer::TellServiceManager(bool serving) {
  if (is_told_serving_.exchange(serving) == serving) return;
  TellServiceManagerOrWarn(serving ? absl::StrCat("READY=1\nSTATUS=serves at ", address_)
                                   : std::string("STOPPING=1\nSTATUS=finishes its work and ends"));
}

absl::StatusOr<std::unique_ptr<TaskServer>> TaskServer::Start(const TaskOptions& options,
                                                              std::vector<grpc::Service*> services,
                                                              GenericServiceHook* hook,
                                                              TaskFace face) {
  ServerOptions server;
  server.address = BindAddress(options);
  server.tls = options.tls;
  server.health_address = options.health_address;
  server.memory_bytes = options.rpc_memory_bytes;
  server.max_connections = ConnectionsWithin(
      RaiseOpenFileLimit(),
      options.max_connections != 0 ? options.max_connections : MostConnections(options.cluster));
  std::unique_ptr<TaskServer> task(new TaskServer(options, std::move(face)));
  services.push_back(&task->admin_);
  ASSIGN_OR_RETURN(task->server_, Server::Start(server, services, hook));
  if (!options.http_address.empty()) {
    const auto page = [pages = &task->pages_](absl::string_view path) { return pages->Page(path); };
    const std::string where = WithLoopback(options.http_address);
    const bool has_tls = !IsLoopback(where);
    ASSIGN_OR_RETURN(task->http_,
                     HttpServer::Start(where, page, has_tls ? options.tls : std::nullopt));
    DIVVY_LOG(INFO) << "its pages are at http" << (has_tls ? "s" : "") << "://" << HostOf(where)
                    << ":" << task->http_->port() << "/statusz";
  }
  // From now on the health of this service follows the health of the whole task.
  task->server_->SetServing(ServiceOf(options.role), false);
  const std::string own = OwnAddress(options.cluster);
  const std::string bound = SocketPathOf(server.address)
                                ? server.address
                                : absl::StrCat(HostOf(server.address), ":", task->server_->port());
  task->address_ = own.empty() ? bound : own;
  if (!options.tls && !SocketPathOf(server.address)) {
    DIVVY_LOG(INFO) << "listens on " << server.address
                    << " without TLS: every user of this machine can reach it. With certificates "
                       "(divvyctl certs), or as unix:/PATH, "
                    << "only the job's own tasks can";
  }
  return task;
}

}  // namespace divvy
