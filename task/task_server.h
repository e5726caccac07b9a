// What every task of a cluster has in common: who it is, where it listens, and a server that says
// so.
#ifndef DIVVY_TASK_TASK_SERVER_H_
#define DIVVY_TASK_TASK_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cluster/cluster_config.h"
#include "cluster/role.h"
#include "proto/divvy.pb.h"
#include "rpc/credentials.h"
#include "rpc/server.h"
#include "task/admin_service.h"

namespace divvy {

// A plain value; task_flags.h makes one from flags and environment.
struct TaskOptions {
  ClusterConfig cluster;
  // An evaluator talks to nobody.
  Role role = Role::kWorker;
  int index = 0;
  // Where to listen; port 0: a free one. "": as BindAddress says.
  std::string bind_address;
  // ServerOptions::health_address
  std::string health_address;
  // None: everything on loopback.
  std::optional<TlsFiles> tls;
  // ServerOptions::memory_bytes
  int64_t rpc_memory_bytes = int64_t{1} << 30;
  // ServerOptions::max_connections; 0: as MostConnections says
  int max_connections = 0;

  std::string name() const;  // "worker 1"
};

// How many connections a task takes that was not told: 256, and four for each task of the cluster;
// 4,096 where the cluster does not list the workers.
int MostConnections(const ClusterConfig& cluster);

// Where a task listens that was not told: at its own address in the cluster if that is on loopback,
// else at its port on every address of the machine (the name that others know it by need not be one
// of this machine's). "127.0.0.1:0" where the cluster does not hold the task.
std::string BindAddress(const TaskOptions& options);

// To be asked before anything else of a task is made. InvalidArgument or FailedPrecondition: an
// address that cannot be listened on, or one that the coordinator could not dial (a task that the
// cluster does not list registers where it listens), plaintext where an address of the cluster is
// not on loopback, or certificates that cannot be used or are those of another task.
absl::Status CheckSecurity(const TaskOptions& options);

// The server of a task, with the admin service. Thread-safe.
class TaskServer {
 public:
  // Listens, and raises the limit of open files, which the log tells. REQUIRES: CheckSecurity is
  // OK; services and hook outlive it; `status` and `calls` as AdminService.
  static absl::StatusOr<std::unique_ptr<TaskServer>> Start(
      const TaskOptions& options, std::vector<grpc::Service*> services, GenericServiceHook* hook,
      std::function<v1::TaskStatus()> status, std::optional<OperatorCalls> calls = std::nullopt);

  // Where others reach this task: its address in the cluster, or the one it listens on.
  const std::string& address() const { return address_; }
  int health_port() const { return server_->health_port(); }  // 0: no health address
  // What the task says of itself, in one line: for the log.
  std::string StatusText() const { return admin_.status().ShortDebugString(); }
  void SetServing(bool serving) { server_->SetServing(serving); }
  void Shutdown(absl::Duration grace) { server_->Shutdown(grace); }

 private:
  TaskServer(std::function<v1::TaskStatus()> status, std::optional<OperatorCalls> calls)
      : admin_(std::move(status), std::move(calls)) {}

  AdminService admin_;
  std::string address_;
  std::unique_ptr<Server> server_;
};

}  // namespace divvy

#endif  // DIVVY_TASK_TASK_SERVER_H_
