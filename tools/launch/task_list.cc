#include "tools/launch/task_list.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy {
namespace {

// As TF_CONFIG writes it.
absl::string_view JobOf(TaskType type) {
  switch (type) {
    case TaskType::kChief: return "chief";
    case TaskType::kPs: return "ps";
    case TaskType::kEvaluator: return "evaluator";
    case TaskType::kWorker: break;
  }
  return "worker";
}

std::string JobEntry(TaskType type, absl::Span<const TaskId> tasks,
                     absl::Span<const std::string> addresses) {
  std::vector<std::string> quoted;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].type == type) quoted.push_back(absl::StrCat("\"", addresses[i], "\""));
  }
  return absl::StrCat("\"", JobOf(type), "\":[", absl::StrJoin(quoted, ","), "]");
}

std::string SocketOf(const std::string& directory, const TaskId& id) {
  if (id.type == TaskType::kEvaluator) return "";
  const std::string index = id.type == TaskType::kChief ? "" : absl::StrCat("-", id.index);
  return absl::StrCat("unix:", directory, "/", JobOf(id.type), index);
}

}  // namespace

std::string TfConfigText(absl::Span<const TaskId> tasks, absl::Span<const std::string> addresses,
                         int self) {
  std::vector<std::string> jobs;
  for (const TaskType type : {TaskType::kChief, TaskType::kPs, TaskType::kWorker})
    jobs.push_back(JobEntry(type, tasks, addresses));
  return absl::StrCat("{\"cluster\":{", absl::StrJoin(jobs, ","), "},\"task\":{\"type\":\"",
                      JobOf(tasks[self].type), "\",\"index\":", tasks[self].index, "}}");
}

std::vector<TaskId> ClusterTasks(int num_ps, int num_workers, int num_evaluators) {
  std::vector<TaskId> tasks = {{TaskType::kChief, 0}};
  for (int i = 0; i < num_ps; ++i) tasks.push_back({TaskType::kPs, i});
  for (int i = 0; i < num_workers; ++i) tasks.push_back({TaskType::kWorker, i});
  for (int i = 0; i < num_evaluators; ++i) tasks.push_back({TaskType::kEvaluator, i});
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
  const auto count = [this](TaskType type) {
    return std::count_if(ids_.begin(), ids_.end(),
                         [type](const TaskId& id) { return id.type == type; });
  };
  const auto workers = count(TaskType::kWorker);
  return absl::StrCat("chief, ", count(TaskType::kPs), " ps, ", workers,
                      workers == 1 ? " worker" : " workers",
                      count(TaskType::kEvaluator) > 0 ? ", evaluator" : "");
}

}  // namespace divvy
