// The tasks of a cluster on this machine, with the address and the TF_CONFIG of each.
#ifndef DIVVY_TOOLS_LAUNCH_TASK_LIST_H_
#define DIVVY_TOOLS_LAUNCH_TASK_LIST_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tools/launch/supervisor.h"

namespace divvy {

// The value of TF_CONFIG, in TensorFlow's format, for tasks[self]. `addresses` has one for each
// task. An evaluator is in no cluster, so its address is not used.
std::string TfConfigText(absl::Span<const TaskId> tasks, absl::Span<const std::string> addresses,
                         int self);

// The chief, then the ps, then the workers, then the evaluators. REQUIRES: no number is negative.
std::vector<TaskId> ClusterTasks(int num_ps, int num_workers, int num_evaluators = 0);

// The tasks of a cluster. Each task that listens has a Unix socket: "unix:DIRECTORY/chief",
// "unix:DIRECTORY/ps-0", ...
class TaskList {
 public:
  TaskList(const std::string& directory, int num_ps, int num_workers, int num_evaluators = 0);

  size_t size() const { return ids_.size(); }
  const std::vector<TaskId>& ids() const { return ids_; }
  std::vector<std::string> names() const;
  std::string TfConfig(int task) const { return TfConfigText(ids_, addresses_, task); }
  std::string Summary() const;  // "chief, 2 ps, 4 workers, evaluator"

 private:
  std::vector<TaskId> ids_;
  std::vector<std::string> addresses_;  // empty text for an evaluator
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_TASK_LIST_H_
