#include "tools/launch/task_list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy {
namespace {

std::string JobEntry(Role role, absl::Span<const TaskId> tasks,
                     absl::Span<const std::string> addresses) {
  std::vector<std::string> quoted;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].role == role) quoted.push_back(absl::StrCat("\"", addresses[i], "\""));
  }
  return absl::StrCat("\"", RoleName(role), "\":[", absl::StrJoin(quoted, ","), "]");
}

std::string SocketOf(const std::string& directory, const TaskId& id) {
  if (id.role == Role::kEvaluator) return "";
  const std::string index = id.role == Role::kChief ? "" : absl::StrCat("-", id.index);
  return absl::StrCat("unix:", directory, "/", RoleName(id.role), index);
}

}  // namespace

std::string TfConfigText(absl::Span<const TaskId> tasks, absl::Span<const std::string> addresses,
                         int self) {
  std::vector<std::string> jobs;
  for (const Role role : {Role::kChief, Role::kPs, Role::kWorker})
    jobs.push_back(JobEntry(role, tasks, addresses));
  return absl::StrCat("{\"cluster\":{", absl::StrJoin(jobs, ","), "},\"task\":{\"type\":\"",
                      RoleName(tasks[self].role), "\",\"index\":", tasks[self].index, "}}");
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
