#include "worker/service/worker_task.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/random.h"
#include "base/status_macros.h"
#include "cluster/cluster_config_resolver.h"
#include "ops/blas_threads.h"
#include "task/no_coordinator_note.h"
#include "wire/trace.h"
#include "worker/service/worker_status.h"

namespace divvy {

absl::Status WorkerTaskOptions::Validate() const {
  std::vector<std::string> problems;
  if (replicas < 0)
    problems.push_back(absl::StrCat("--replicas_per_worker is ", replicas,
                                    ", wanted at least 1, or 0 for one on each GPU"));
  if (blas_threads < 0)
    problems.push_back(absl::StrCat("--blas_threads is ", blas_threads, ", wanted at least 0"));
  if (workers_per_host < 0)
    problems.push_back(
        absl::StrCat("--workers_per_host is ", workers_per_host, ", wanted at least 0"));
  for (std::string& problem : core.pulls.Problems()) problems.push_back(std::move(problem));
  return problems.empty() ? absl::OkStatus()
                          : absl::InvalidArgumentError(absl::StrJoin(problems, "; "));
}

int WorkersOnHostOf(const ClusterConfig& cluster) {
  const auto host_of = [](absl::string_view address) {
    return address.substr(0, address.rfind(':'));
  };
  const std::string own = OwnAddress(cluster);
  const ClusterSpec::Jobs jobs = TrainingCluster(cluster);
  const auto workers = jobs.find("worker");
  if (own.empty() || workers == jobs.end()) return 1;
  const auto is_near = [&](const auto& worker) { return host_of(worker.second) == host_of(own); };
  return std::max<int>(
      1, static_cast<int>(std::count_if(workers->second.begin(), workers->second.end(), is_near)));
}

int DefaultBlasThreads(int cores, int workers, int replicas) {
  return std::max(1, cores / std::max(1, workers * replicas));
}

WorkerTask::WorkerTask(const WorkerTaskOptions& options, std::vector<Device> replica_devices)
    : options_(options),
      replica_devices_(std::move(replica_devices)),
      executor_(std::max(2, NumCores())),
      service_(core_, executor_),
      dialer_(executor_, options.task.tls, options.task.shares_memory) {}

WorkerTask::~WorkerTask() {
  if (const auto core = core_.Get()) core->Abandon();
  if (server_ != nullptr) server_->Shutdown(absl::ZeroDuration());
  dialer_.Close();
  executor_.Stop();
  core_.Reset();  // before the objects that it uses
}

absl::StatusOr<std::unique_ptr<WorkerTask>> WorkerTask::Start(const WorkerTaskOptions& options,
                                                              OnExit on_exit) {
  RETURN_IF_ERROR(options.Validate());
  RETURN_IF_ERROR(CheckSecurity(options.task));  // before anything reads the certificates
  ASSIGN_OR_RETURN(std::vector<std::vector<Device>> devices,
                   OpenReplicaDevices(options.gpus, options.replicas, /*num_workers=*/1));
  std::unique_ptr<WorkerTask> task(new WorkerTask(options, std::move(devices[0])));
  RETURN_IF_ERROR(task->Listen());
  RETURN_IF_ERROR(task->StartCore(std::move(on_exit)));
  task->server_->SetServing(true);
  return task;
}

absl::Status WorkerTask::Listen() {
  const auto status = [this] {
    const auto core = core_.Get();
    std::vector<DeviceDescription> devices;
    for (const Device device : replica_devices_) devices.push_back(Describe(device));
    return WorkerTaskStatus(options_.core, core == nullptr ? WorkerSnapshot() : core->Inspect(),
                            devices);
  };
  options_.core.metrics = &metrics_;
  options_.core.traces = &traces_;
  options_.core.index = options_.task.index;
  options_.core.incarnation = Incarnation(EntropySeed());
  options_.core.cluster = TrainingCluster(options_.task.cluster);
  TaskFace face;
  face.status = status;
  face.metrics = &registry_;
  face.executor = &executor_;
  face.traces = [this] {
    const auto core = core_.Get();
    return wire::ToProto(traces_, core == nullptr ? JobId() : core->Inspect().job,
                         Clock::Real().Elapsed(), Clock::Real().WallTime());
  };
  ASSIGN_OR_RETURN(server_,
                   TaskServer::Start(options_.task, {&service_}, nullptr, std::move(face)));
  return absl::OkStatus();
}

absl::Status WorkerTask::StartCore(OnExit on_exit) {
  const int replicas = static_cast<int>(replica_devices_.size());
  const int workers = options_.workers_per_host > 0 ? options_.workers_per_host
                                                    : WorkersOnHostOf(options_.task.cluster);
  SetBlasThreads(options_.blas_threads > 0 ? options_.blas_threads
                                           : DefaultBlasThreads(NumCores(), workers, replicas));
  if (const std::string chief = CoordinatorAddress(options_.task.cluster); !chief.empty())
    coordinator_ = dialer_.Coordinator(chief);
  WorkerOptions options = options_.core;
  options.address = server_->address();
  ASSIGN_OR_RETURN(
      parts_, BuildWorker(std::move(options), replica_devices_,
                          {executor_, dialer_, coordinator_.get(),
                           ClusterConfigResolver(options_.task.cluster), options_.communication},
                          std::move(on_exit)));
  core_.Set(std::move(parts_.core));
  if (CoordinatorAddress(options_.task.cluster).empty()) {
    WarnOfNoCoordinator(executor_, options_.task.name(), [this] {
      const auto core = core_.Get();
      return core != nullptr && !core->Inspect().attached;
    });
  }
  return absl::OkStatus();
}

void WorkerTask::Drain() {
  server_->SetServing(false);
  core_.Get()->Drain();
}

}  // namespace divvy
