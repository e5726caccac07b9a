#include "tools/launch/task_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cluster/cluster_config.h"

namespace divvy {
namespace {

std::string SocketOf(const std::string& directory, const TaskId& id) {
  if (id.role == Role::kEvaluator) return "";
  const std::string index = id.role == Role::kChief ? "" : absl::StrCat("-", id.index);
  return absl::StrCat("unix:", directory, "/", RoleName(id.role), index);
}

}  // namespace

std::string TfConfigText(absl::Span<const TaskId> tasks, absl::Span<const std::string> addresses,
                         int self) {
  ClusterSpec::Jobs jobs;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].role != Role::kEvaluator)
      jobs[std::string(RoleName(tasks[i].role))][tasks[i].index] = addresses[i];
  }
  ClusterConfig config;
  config.spec = ClusterSpec(std::move(jobs));
  config.task_type = std::string(RoleName(tasks[self].role));
  config.task_index = tasks[self].index;
  return TfConfigText(config);
}

std::vector<TaskId> ClusterTasks(int num_ps, int num_workers, int num_evaluators) {
  std::vector<TaskId> tasks = {{Role::kChief, 0}};
  for (int i = 0; i < num_ps; ++i) tasks.push_back({Role::kPs, i});
  for (int i = 0; i < num_workers; ++i) tasks.push_back({Role::kWorker, i});
  for (int i = 0; i < num_evaluators; ++i) tasks.push_back({Role::kEvaluator, i});
  return tasks;
}

TaskList::TaskList(const std::string& directory, int num_ps, int num_workers, int num_evaluators)
    : ids_(ClusterTasks(num_ps, num_workers, num_evaluators)) {
  for (const TaskId& id : ids_) addresses_.push_back(SocketOf(directory, id));
}

std::vector<std::string> TaskList::names() const {
  std::vector<std::string> names;
  for (const TaskId& id : ids_) names.push_back(ToString(id));
  return names;
}

std::string TaskList::Summary() const {
  const auto count = [this](Role role) {
    return std::count_if(ids_.begin(), ids_.end(),
                         [role](const TaskId& id) { return id.role == role; });
  };
  const auto workers = count(Role::kWorker);
  return absl::StrCat("chief, ", count(Role::kPs), " ps, ", workers,
                      workers == 1 ? " worker" : " workers",
                      count(Role::kEvaluator) > 0 ? ", evaluator" : "");
}

}  // namespace divvy
