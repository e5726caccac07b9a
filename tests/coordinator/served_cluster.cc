// Tasks as in processes of their own, on ports of 127.0.0.1, with a proxy before each parameter
// server.
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status_macros.h"
#include "base/testing/loopback_port.h"
#include "cluster/cluster_config.h"
#include "coordinator/service/chief_task.h"
#include "ps_server/service/ps_task.h"
#include "tests/coordinator/live_cluster.h"
#include "tests/e2e/fault_proxy.h"
#include "tools/launch/task_list.h"
#include "worker/service/worker_task.h"

namespace divvy::rules {
namespace {

// A task here does not exit. To kill it, it is destroyed.
void IgnoreExit(int, const std::string&) {}

class ServedCluster : public LiveCluster {
 public:
  explicit ServedCluster(const ClusterOptions& options)
      : options_(options),
        ids_(ClusterTasks(options.num_ps, options.num_workers)),
        ps_(options.num_ps),
        workers_(options.num_workers) {}
  ~ServedCluster() override { StopProgram(); }

  absl::Status Start() {
    RETURN_IF_ERROR(TakePorts());
    for (int i = 0; i < options_.num_ps; ++i) StartPs(i);
    for (int i = 0; i < options_.num_workers; ++i) StartWorker(i);
    ChiefTaskOptions chief;
    ASSIGN_OR_RETURN(chief.task, OptionsOf(Role::kChief, 0));
    chief.setup.core = options_.limits;
    chief.setup.core.min_workers = options_.num_workers;
    ASSIGN_OR_RETURN(chief_, ChiefTask::Start(chief));
    return Prepare(options_.num_ps);
  }

  BlockingCoordinator& coordinator() override { return chief_->coordinator(); }
  void KillWorker(int index) override { workers_[index] = nullptr; }
  void StartWorker(int index) override {
    WorkerTaskOptions options;
    options.task = *OptionsOf(Role::kWorker, index);
    auto worker = WorkerTask::Start(options, IgnoreExit);
    DIVVY_CHECK(worker.ok());
    workers_[index] = *std::move(worker);
  }
  void KillPs(int index) override { ps_[index] = nullptr; }
  void StartPs(int index) override {
    PsTaskOptions options;
    options.task = *OptionsOf(Role::kPs, index);
    auto ps = PsTask::Start(options, IgnoreExit);
    DIVVY_CHECK(ps.ok());
    ps_[index] = *std::move(ps);
  }
  void CutPs(int index) override {
    proxies_[index]->Refuse();
    proxies_[index]->CutAll();
  }
  void HealPs(int index) override { proxies_[index]->Heal(); }

 private:
  size_t PlaceOf(Role role, int index) const {
    if (role == Role::kChief) return 0;
    return 1 + static_cast<size_t>(role == Role::kPs ? index : options_.num_ps + index);
  }

  absl::Status TakePorts() {
    for (const TaskId& task : ids_) {
      ASSIGN_OR_RETURN(LoopbackPort port, LoopbackPort::Reserve());
      addresses_.push_back(port.address());
      ports_.push_back(std::move(port));
      if (task.role != Role::kPs) continue;
      ASSIGN_OR_RETURN(std::unique_ptr<FaultProxy> proxy,
                       FaultProxy::Start(ports_.back().address()));
      addresses_.back() = proxy->address();
      proxies_.push_back(std::move(proxy));
    }
    return absl::OkStatus();
  }

  absl::StatusOr<TaskOptions> OptionsOf(Role role, int index) const {
    const size_t place = PlaceOf(role, index);
    TaskOptions task;
    ASSIGN_OR_RETURN(task.cluster,
                     ParseTfConfig(TfConfigText(ids_, addresses_, static_cast<int>(place))));
    task.role = role;
    task.index = index;
    task.bind_address = ports_[place].address();
    return task;
  }

  const ClusterOptions options_;
  const std::vector<TaskId> ids_;
  std::vector<LoopbackPort> ports_;
  std::vector<std::string> addresses_;  // in the cluster spec
  std::vector<std::unique_ptr<FaultProxy>> proxies_;
  std::vector<std::unique_ptr<PsTask>> ps_;
  std::vector<std::unique_ptr<WorkerTask>> workers_;
  std::unique_ptr<ChiefTask> chief_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterUnderTest>> MakeCluster(const ClusterOptions& options) {
  auto cluster = std::make_unique<ServedCluster>(options);
  RETURN_IF_ERROR(cluster->Start());
  return std::unique_ptr<ClusterUnderTest>(std::move(cluster));
}

}  // namespace divvy::rules
