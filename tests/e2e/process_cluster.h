// A cluster of real processes under test.
#ifndef DIVVY_TESTS_E2E_PROCESS_CLUSTER_H_
#define DIVVY_TESTS_E2E_PROCESS_CLUSTER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/testing/loopback_port.h"
#include "tests/e2e/fault_proxy.h"
#include "tools/launch/supervisor.h"
#include "tools/launch/testing/watched_processes.h"

namespace divvy {

inline constexpr TaskId kChiefTask = {Role::kChief, 0};
inline TaskId PsTask(int index) { return {Role::kPs, index}; }
inline TaskId WorkerTask(int index) { return {Role::kWorker, index}; }

struct ProcessClusterOptions {
  std::string program;  // plays every role by TF_CONFIG
  int num_ps = 2, num_workers = 2;
  // Of every task.
  std::vector<std::string> flags;
  // Each task's address in TF_CONFIG is that of a FaultProxy before it.
  bool proxied = false;
};

// What one life of a task has besides.
struct LifeOptions {
  // After those of the cluster: the last one counts.
  std::vector<std::string> flags;
  // In place of the task's own where the names are the same.
  std::map<std::string, std::string> environment;
  // In place of the cluster's.
  std::string program;
};

// The tasks of one program on free ports of 127.0.0.1, each told who it is by TF_CONFIG. Ports stay
// the same over restarts. Nothing waits without a timeout; what still runs in the end is killed.
// Not thread-safe; to be used by one thread.
class ProcessCluster {
 public:
  // Makes ports and proxies; starts nothing.
  static absl::StatusOr<std::unique_ptr<ProcessCluster>> Make(ProcessClusterOptions options);

  // Starts the task, or a new life of it. REQUIRES: it does not run.
  absl::Status Start(TaskId task, const LifeOptions& life = {});
  // What Start starts: for a second process that plays the same task, through processes().
  ChildOptions OptionsOf(TaskId task, const LifeOptions& life = {}) const;
  // Chief, ps, workers: all that do not run.
  absl::Status StartAll(const LifeOptions& life = {});
  // SIGKILL, SIGSTOP, SIGCONT, SIGTERM ...; nothing if it does not run.
  void Signal(TaskId task, int signal) { processes_.Signal(ToString(task), signal); }
  // SIGKILL, and waits until it is gone. Returns how it ended: by another way, if it was faster.
  absl::StatusOr<ExitStatus> Kill(TaskId task);
  // As if the disk were full to it: from now on it cannot write a file beyond so many bytes, until
  // it is given more or has ended. Nothing if it does not run.
  void LimitFiles(TaskId task, uint64_t bytes);
  static constexpr uint64_t kUnlimited = ~uint64_t{0};

  bool running(TaskId task) const { return processes_.running(ToString(task)); }
  const std::string& output(TaskId task) const { return processes_.output(ToString(task)); }
  absl::StatusOr<std::string> WaitForText(TaskId task, absl::string_view text,
                                          absl::Duration timeout) {
    return processes_.WaitForText(ToString(task), text, timeout);
  }
  absl::StatusOr<ExitStatus> WaitForExit(TaskId task, absl::Duration timeout) {
    return processes_.WaitForExit(ToString(task), timeout);
  }
  // Waits until every task has ended. DeadlineExceeded names those that have not.
  absl::Status WaitForAll(absl::Duration timeout);
  // For all else: other processes beside the tasks, waits for conditions, the last lines of all.
  WatchedProcesses& processes() { return processes_; }

  const std::vector<TaskId>& tasks() const { return tasks_; }
  // As TF_CONFIG has it.
  std::string address(TaskId task) const { return advertised_[IndexOf(task)]; }
  std::string bind_address(TaskId task) const { return ports_[IndexOf(task)].address(); }
  std::string TfConfig(TaskId task) const;
  FaultProxy& proxy(TaskId task) { return *proxies_[IndexOf(task)]; }  // REQUIRES: proxied

 private:
  explicit ProcessCluster(ProcessClusterOptions options);
  absl::Status Prepare();
  size_t IndexOf(TaskId task) const;

  const ProcessClusterOptions options_;
  const std::vector<TaskId> tasks_;
  std::vector<LoopbackPort> ports_;
  std::vector<std::unique_ptr<FaultProxy>> proxies_;
  std::vector<std::string> advertised_;
  WatchedProcesses processes_;
};

}  // namespace divvy

#endif  // DIVVY_TESTS_E2E_PROCESS_CLUSTER_H_
