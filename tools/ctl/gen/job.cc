#include "tools/ctl/gen/job.h"

#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/exit_codes.h"
#include "cluster/cluster_config.h"

namespace divvy::gen {
namespace {

// The place of the task among all tasks.
int NumberOf(const Job& job, const Task& task) {
  int number = task.index;
  for (const RolePlan& role : job.roles) {
    if (role.role == task.role) break;
    number += role.count;
  }
  return number;
}

}  // namespace

bool IsOnKubernetes(Kind kind) {
  return kind == Kind::kKubernetes || kind == Kind::kTfJob || kind == Kind::kJobSet;
}
bool HasContainers(Kind kind) { return IsOnKubernetes(kind) || kind == Kind::kCompose; }

bool IsVolume(absl::string_view checkpoints) { return !absl::StrContains(checkpoints, "/"); }

std::vector<int> PermanentCodes() {
  std::vector<int> codes(exit_codes::kOfSignal - 1);
  std::iota(codes.begin(), codes.end(), 1);
  return codes;
}

std::string Task::name() const { return absl::StrCat(RoleName(role), "-", index); }

bool SeesCheckpoints(const Job& job, const RolePlan& role) {
  return role.role != Role::kWorker && !job.checkpoint_dir.empty();
}

bool WritesCheckpoints(const Job& job, const RolePlan& role) {
  return SeesCheckpoints(job, role) && (role.is_in_cluster() || !job.tensorboard_dir.empty());
}

std::vector<Task> TasksOf(const Job& job) {
  std::vector<Task> tasks;
  for (const RolePlan& role : job.roles) {
    for (int i = 0; i < role.count; ++i) tasks.push_back({role.role, i});
  }
  return tasks;
}

std::string HostOf(const Job& job, const Task& task) {
  const absl::string_view role = RoleName(task.role);
  switch (job.kind) {
    // Kubernetes completes the names of Services with the namespace.
    case Kind::kKubernetes:
      return absl::StrCat(job.name, "-", task.name(), ".", job.name, "-", role);
    // Job 0 of the replicated job, pod `index`; the subdomain is the JobSet's name.
    case Kind::kJobSet: return absl::StrCat(job.name, "-", role, "-0-", task.index, ".", job.name);
    // The operator makes a Service for each pod.
    case Kind::kTfJob: return absl::StrCat(job.name, "-", task.name());
    case Kind::kSystemd: {
      const std::vector<std::string>& hosts = *job.options.hosts;
      return hosts[NumberOf(job, task) % hosts.size()];
    }
    case Kind::kCompose:
    case Kind::kSlurm:
    case Kind::kPrometheus: break;
  }
  return task.name();
}

int PortOf(const Job& job, const Task& task, int first) {
  return job.kind == Kind::kSystemd ? first + NumberOf(job, task) : first;
}

std::string TfConfigOf(const Job& job, Role role, std::optional<int> index) {
  ClusterSpec::Jobs jobs;
  for (const Task& task : TasksOf(job)) {
    if (task.role != Role::kEvaluator)
      jobs[std::string(RoleName(task.role))][task.index] =
          absl::StrCat(HostOf(job, task), ":", PortOf(job, task, kPort));
  }
  ClusterConfig config;
  if (role != Role::kEvaluator) config.spec = ClusterSpec(std::move(jobs));
  config.task_type = std::string(RoleName(role));
  config.task_index = index;
  return TfConfigText(config);
}

std::vector<std::string> PlaceFlags(const Job& job, const RolePlan& role, const Place& place) {
  std::vector<std::string> flags;
  const auto add = [&flags](absl::string_view name, absl::string_view value) {
    if (!value.empty()) flags.push_back(absl::StrCat("--", name, "=", value));
  };
  if (!place.task_index.empty()) add("task_type", role.name());
  add("task_index", place.task_index);
  if (role.is_in_cluster()) {
    add("bind_address", place.bind_address);
    add("http_address", place.http_address);
    add("health_address", place.health_address);
    add("tls_cert", place.tls_cert);
    add("tls_key", place.tls_key);
    add("tls_ca", place.tls_ca);
  }
  if (role.role == Role::kChief) add("state_dir", place.state_dir);
  if (SeesCheckpoints(job, role) && !job.says_checkpoint_dir)
    add("checkpoint_dir", job.checkpoint_dir);
  return flags;
}

}  // namespace divvy::gen
