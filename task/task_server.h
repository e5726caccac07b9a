// What every task of a cluster has in common: its identity, its address, and a server that reports
// its status.
#ifndef DIVVY_TASK_TASK_SERVER_H_
#define DIVVY_TASK_TASK_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/executor.h"
#include "base/metrics.h"
#include "cluster/cluster_config.h"
#include "protocol/role.h"
#include "rpc/admin_service.h"
#include "rpc/credentials.h"
#include "rpc/http_server.h"
#include "rpc/server.h"
#include "rpc/status_history.h"
#include "rpc/task_pages.h"

namespace divvy {

// The identity and the network options of a task. A plain value; task_flags.h makes one from flags
// and environment.
struct TaskOptions {
  ClusterConfig cluster;
  // An evaluator has no connections.
  Role role = Role::kWorker;
  int index = 0;
  // The address to listen on; port 0 means any free port. Empty: BindAddress decides.
  std::string bind_address;
  // See ServerOptions::health_address.
  std::string health_address;
  // "host:port" of the pages (rpc/task_pages.h); ":port" means 127.0.0.1. Empty: none. Beyond
  // loopback they are served with TLS to callers with a certificate of the job.
  std::string http_address;
  // None: plaintext, and all addresses must be on loopback.
  std::optional<TlsFiles> tls;
  // Whether payloads may lie in memory that this task shares with others of this machine
  // (rpc/data_client.h, --local_path).
  bool shares_memory = true;
  // See ServerOptions::memory_bytes.
  int64_t rpc_memory_bytes = int64_t{1} << 30;
  // See ServerOptions::max_connections. 0: MostConnections decides.
  int max_connections = 0;

  std::string name() const;  // "worker 1"
};

// The default limit of a task's connections: 256, plus four for each task of the cluster; 4,096 if
// the cluster does not list the workers. Pure.
int MostConnections(const ClusterConfig& cluster);

// The address that a task listens on: options.bind_address if it is set. Otherwise the task's own
// address in the cluster if that is on this machine (loopback or a Unix socket). Otherwise its port
// on every address of the machine, since the name that other tasks use need not be an address of
// this machine. "127.0.0.1:0" if the cluster does not list the task. Pure.
std::string BindAddress(const TaskOptions& options);

// Checks the network options; call it before any other part of a task is made. Reads the
// certificate files. InvalidArgument or FailedPrecondition:
// - The task cannot listen on an address.
// - The coordinator could not dial the task. A task that the cluster does not list registers the
//   address that it listens on.
// - There are no certificates, and an address of the cluster is not on loopback.
// - The certificates cannot be used, or belong to another task.
absl::Status CheckSecurity(const TaskOptions& options);

// What a task shows of itself, and what operators may ask of it.
struct TaskFace {
  // As rpc/admin_service.h requires.
  StatusOfTask status;
  std::optional<OperatorCalls> calls = std::nullopt;
  RowsForOperator rows = nullptr;
  // Null: the task keeps no times of steps.
  TracesOfTask traces = nullptr;
  // The task's own metrics, for the page /metrics. Null: none. REQUIRES: outlives the server.
  const MetricsRegistry* metrics = nullptr;
  // Runs the timer of the samples that findings and pictures are made of. Null: there are none.
  // REQUIRES: outlives the server.
  Executor* executor = nullptr;
};

// The gRPC server of a task, with the service Admin. The destructor shuts it down. Thread-safe.
class TaskServer {
 public:
  // Starts to listen. First raises the process's limit of open files and logs it; no more than
  // three quarters of that limit become connections. Errors as Server::Start. REQUIRES:
  // CheckSecurity returned OK; services and hook outlive the server.
  static absl::StatusOr<std::unique_ptr<TaskServer>> Start(const TaskOptions& options,
                                                           std::vector<grpc::Service*> services,
                                                           GenericServiceHook* hook, TaskFace face);

  // The address at which others reach this task: its address in the cluster, else the one it
  // listens on.
  const std::string& address() const { return address_; }
  // 0: there is no health address.
  int health_port() const { return server_->health_port(); }
  // 0: there is no HTTP address.
  int http_port() const { return http_ == nullptr ? 0 : http_->port(); }
  // The status of the task in one line, for the log.
  std::string StatusText() const { return admin_.StatusText(); }
  // See Server::SetServing and Server::Shutdown; Shutdown blocks. Both also tell the service
  // manager (base/service_manager.h), which may block for a second: READY=1 when the task begins to
  // serve, STOPPING=1 when it stops.
  void SetServing(bool serving) {
    server_->SetServing(serving);
    pages_.SetServing(serving);
    TellServiceManager(serving);
  }
  // The pages are closed first, so that nobody asks for the status of a task that is taken down.
  void Shutdown(absl::Duration grace) {
    TellServiceManager(false);
    pages_.SetServing(false);
    sampler_.reset();
    http_.reset();
    server_->Shutdown(grace);
  }

 private:
  TaskServer(const TaskOptions& options, TaskFace face);
  void TellServiceManager(bool serving);

  // Takes the samples of the history, as long as it exists.
  class Sampler;

  const std::shared_ptr<StatusHistory> history_ = std::make_shared<StatusHistory>();
  AdminService admin_;
  TaskPages pages_;
  std::string address_;
  std::atomic<bool> is_told_serving_{false};  // what the service manager has been told
  std::unique_ptr<Server> server_;
  std::unique_ptr<HttpServer> http_;  // null: no pages are served
  std::shared_ptr<Sampler> sampler_;  // null: no samples are taken
};

}  // namespace divvy

#endif  // DIVVY_TASK_TASK_SERVER_H_
