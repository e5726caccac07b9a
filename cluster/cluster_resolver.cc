#include "cluster/cluster_resolver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace divvy {

std::vector<std::string> ClusterSpec::jobs() const {
  std::vector<std::string> names;
  for (const auto& [job, tasks] : jobs_) names.push_back(job);
  return names;
}

int ClusterSpec::num_tasks(absl::string_view job) const { return static_cast<int>(task_indices(job).size()); }

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
    return absl::InvalidArgumentError(absl::StrCat("the cluster has no job \"", job, "\"; it has: ", absl::StrJoin(jobs(), ", ")));
  }
  const auto task = found->second.find(index);
  if (task == found->second.end()) {
    return absl::InvalidArgumentError(absl::StrCat("job \"", job, "\" has no task ", index, "; it has: ", absl::StrJoin(task_indices(job), ", ")));
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

namespace {

class EmbeddedResolver : public ClusterResolver {
 public:
  EmbeddedResolver(ClusterSpec spec, std::string task_type, int task_id) : spec_(std::move(spec)), task_type_(std::move(task_type)), task_id_(task_id) {}

  absl::StatusOr<ClusterSpec> cluster_spec() const override { return spec_; }
  std::string task_type() const override { return task_type_; }
  std::optional<int> task_id() const override { return task_id_; }
  std::string rpc_layer() const override { return "grpc"; }
  std::string environment() const override { return ""; }
  absl::StatusOr<std::string> master(absl::string_view task_type, std::optional<int> task_id) const override {
    return spec_.task_address(task_type.empty() ? task_type_ : task_type, task_id.value_or(task_id_));
  }
  absl::StatusOr<std::map<std::string, int>> num_accelerators(absl::string_view task_type, std::optional<int> task_id) const override {
    if (const auto address = master(task_type, task_id); !address.ok()) return address.status();
    return std::map<std::string, int>();   // embedded roles compute on the CPU
  }

 private:
  const ClusterSpec spec_;
  const std::string task_type_;
  const int task_id_;
};

std::map<int, std::string> EmbeddedTasks(absl::string_view job, int number) {
  std::map<int, std::string> tasks;
  for (int i = 0; i < number; ++i) tasks[i] = absl::StrCat("embedded:", job, "/", i);
  return tasks;
}

}  // namespace

std::unique_ptr<ClusterResolver> EmbeddedClusterResolver(int num_ps, int num_workers, std::string task_type, int task_id) {
  ClusterSpec spec({{"chief", EmbeddedTasks("chief", 1)}, {"ps", EmbeddedTasks("ps", num_ps)}, {"worker", EmbeddedTasks("worker", num_workers)}});
  return std::make_unique<EmbeddedResolver>(std::move(spec), std::move(task_type), task_id);
}

}  // namespace divvy
