#include "cluster/cluster_spec.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy {

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  for (const auto& [job, tasks] : jobs_) names.push_back(job);
  return names;
}

int ClusterSpec::num_tasks(absl::string_view job) const {
  return static_cast<int>(task_indices(job).size());
}

std::vector<int> ClusterSpec::task_indices(absl::string_view job) const {
  std::vector<int> indices;
  const auto found = jobs_.find(std::string(job));
  if (found == jobs_.end()) return indices;
  for (const auto& [index, address] : found->second) indices.push_back(index);
  return indices;
}

absl::StatusOr<std::string> ClusterSpec::task_address(absl::string_view job, int index) const {
  const auto found = jobs_.find(std::string(job));
  if (found == jobs_.end()) {
    return absl::InvalidArgumentError(absl::StrCat("the cluster has no job \"", job,
                                                   "\"; it has: ", absl::StrJoin(jobs(), ", ")));
  }
  const auto task = found->second.find(index);
  if (task == found->second.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("job \"", job, "\" has no task ", index,
                     "; it has: ", absl::StrJoin(task_indices(job), ", ")));
  }
  return task->second;
}

std::vector<std::optional<std::string>> ClusterSpec::job_tasks(absl::string_view job) const {
  std::vector<std::optional<std::string>> tasks;
  const auto found = jobs_.find(std::string(job));
  if (found == jobs_.end() || found->second.empty()) return tasks;
  tasks.resize(found->second.rbegin()->first + 1);
  for (const auto& [index, address] : found->second) tasks[index] = address;
  return tasks;
}

}  // namespace divvy
