#include "tests/e2e/process_cluster.h"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "tools/launch/task_list.h"

namespace divvy {
namespace {

constexpr absl::Duration kUntilGone = absl::Seconds(10);  // the longest wait after SIGKILL

}  // namespace

absl::StatusOr<std::unique_ptr<ProcessCluster>> ProcessCluster::Make(
    ProcessClusterOptions options) {
  std::unique_ptr<ProcessCluster> cluster(new ProcessCluster(std::move(options)));
  RETURN_IF_ERROR(cluster->Prepare());
  return cluster;
}

ProcessCluster::ProcessCluster(ProcessClusterOptions options)
    : options_(std::move(options)), tasks_(ClusterTasks(options_.num_ps, options_.num_workers)) {}

absl::Status ProcessCluster::Prepare() {
  for (size_t i = 0; i < tasks_.size(); ++i) {
    ASSIGN_OR_RETURN(LoopbackPort port, LoopbackPort::Reserve());
    advertised_.push_back(port.address());
    ports_.push_back(std::move(port));
    if (!options_.proxied) continue;
    ASSIGN_OR_RETURN(std::unique_ptr<FaultProxy> proxy, FaultProxy::Start(ports_[i].address()));
    advertised_[i] = proxy->address();
    proxies_.push_back(std::move(proxy));
  }
  return absl::OkStatus();
}

absl::Status ProcessCluster::Start(TaskId task, const LifeOptions& life) {
  return processes_.Start(ToString(task), OptionsOf(task, life));
}

absl::Status ProcessCluster::StartAll(const LifeOptions& life) {
  for (const TaskId& task : tasks_) {
    if (!running(task)) RETURN_IF_ERROR(Start(task, life));
  }
  return absl::OkStatus();
}

absl::StatusOr<ExitStatus> ProcessCluster::Kill(TaskId task) {
  Signal(task, SIGKILL);
  return WaitForExit(task, kUntilGone);
}

// Changes the soft limit only, because an ordinary user can raise it again.
void ProcessCluster::LimitFiles(TaskId task, uint64_t bytes) {
  static_assert(kUnlimited == RLIM_INFINITY, "the same");
  if (!running(task)) return;
  const pid_t pid = processes_.pid(ToString(task));
  rlimit limit{};
  if (prlimit(pid, RLIMIT_FSIZE, nullptr, &limit) != 0) return;  // the task has just ended
  limit.rlim_cur = std::min<rlim_t>(bytes, limit.rlim_max);
  prlimit(pid, RLIMIT_FSIZE, &limit, nullptr);
}

absl::Status ProcessCluster::WaitForAll(absl::Duration timeout) {
  const auto over = [this] {
    return std::none_of(tasks_.begin(), tasks_.end(),
                        [this](const TaskId& task) { return running(task); });
  };
  if (processes_.WaitUntil(over, timeout)) return absl::OkStatus();
  std::string names;
  for (const TaskId& task : tasks_) {
    if (running(task)) absl::StrAppend(&names, names.empty() ? "" : ", ", ToString(task));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      names, " did not end within ", absl::FormatDuration(timeout), processes_.LastLines()));
}

std::string ProcessCluster::TfConfig(TaskId task) const {
  return TfConfigText(tasks_, advertised_, static_cast<int>(IndexOf(task)));
}

size_t ProcessCluster::IndexOf(TaskId task) const {
  const auto found = std::find(tasks_.begin(), tasks_.end(), task);
  DIVVY_CHECK(found != tasks_.end());
  return static_cast<size_t>(found - tasks_.begin());
}

ChildOptions ProcessCluster::OptionsOf(TaskId task, const LifeOptions& life) const {
  ChildOptions child;
  child.command = {life.program.empty() ? options_.program : life.program};
  if (options_.proxied)
    child.command.push_back(absl::StrCat("--bind_address=", bind_address(task)));
  child.command.insert(child.command.end(), options_.flags.begin(), options_.flags.end());
  child.command.insert(child.command.end(), life.flags.begin(), life.flags.end());
  child.environment = life.environment;
  child.environment.emplace("TF_CONFIG", TfConfig(task));
  return child;
}

}  // namespace divvy
