// Runs a cluster of real processes for a test.
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
  std::string program;  // plays every role, chosen by TF_CONFIG
  int num_ps = 2, num_workers = 2;
  // Flags of every task.
  std::vector<std::string> flags;
  // A FaultProxy stands before each task, and TF_CONFIG names the proxy's address.
  bool proxied = false;
};

// What is special in one life of a task.
struct LifeOptions {
  // Appended to the cluster's flags. Of two equal flags the last one counts.
  std::vector<std::string> flags;
  // Overrides variables of the task's environment.
  std::map<std::string, std::string> environment;
  // Replaces the cluster's program.
  std::string program;
};

// The tasks of one program on free ports of 127.0.0.1. TF_CONFIG gives each task its role and
// index. Ports stay the same over restarts. Every wait has a timeout. The destructor kills the
// tasks that still run. Not thread-safe: used by one thread.
class ProcessCluster {
 public:
  // Makes ports and proxies. Starts no task.
  static absl::StatusOr<std::unique_ptr<ProcessCluster>> Make(ProcessClusterOptions options);

  // Starts the task, or a new life of it. REQUIRES: the task does not run.
  absl::Status Start(TaskId task, const LifeOptions& life = {});
  // The options that Start uses. With them, processes() can start a second process for the same
  // task.
  ChildOptions OptionsOf(TaskId task, const LifeOptions& life = {}) const;
  // Starts the tasks that do not run: first the chief, then ps, then workers.
  absl::Status StartAll(const LifeOptions& life = {});
  // Sends a signal (SIGKILL, SIGSTOP, SIGCONT, SIGTERM, ...). Does nothing if the task does not
  // run.
  void Signal(TaskId task, int signal) { processes_.Signal(ToString(task), signal); }
  // Sends SIGKILL and waits for the end. Returns how the task ended: it may have exited just
  // before.
  absl::StatusOr<ExitStatus> Kill(TaskId task);
  // Acts like a full disk: from now on the task cannot write a file beyond `bytes`, until the limit
  // is raised or the task ends. Does nothing if the task does not run.
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
  // Waits until every task has ended. DeadlineExceeded names the tasks that have not.
  absl::Status WaitForAll(absl::Duration timeout);
  // The processes themselves: to start others beside the tasks, wait for conditions, print last
  // lines.
  WatchedProcesses& processes() { return processes_; }

  const std::vector<TaskId>& tasks() const { return tasks_; }
  // The task's address in TF_CONFIG.
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
