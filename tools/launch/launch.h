// `divvyctl launch` runs a cluster of processes on this machine.
#ifndef DIVVY_TOOLS_LAUNCH_LAUNCH_H_
#define DIVVY_TOOLS_LAUNCH_LAUNCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace divvy {

struct LaunchOptions {
  int ps = 2;
  int workers = 2;
  // The program and its arguments, the same for every task, but ps_command.h has what parameter
  // servers run for a Python program. A name without a slash is looked up in PATH.
  std::vector<std::string> command;
  // A directory for the tasks' output, <task>.log; empty: none.
  std::string logs;
  // The interval at which a random task is SIGKILLed; 0: never.
  absl::Duration chaos;
  // The roles that chaos may hit: worker, ps, coordinator.
  std::vector<std::string> chaos_roles = {"worker"};
  // The random seed of chaos; 0: a random one, which is printed.
  uint64_t seed = 0;
  // Restarts of one task within 10 minutes, at most.
  int max_restarts = 5;
  // Adds an evaluator, which scores the job's checkpoints (docs/operating/operations.md).
  bool evaluator = false;
  // Prints at the end how much CPU time and memory each task has used, over all its lives.
  bool usage = false;

  // InvalidArgument with every problem of the options at once.
  absl::Status Validate() const;
};

// Runs one process for each task, with TF_CONFIG set, until the job is over. Blocks. The tasks
// listen on Unix sockets in a directory that no other user may enter. Their output goes to standard
// error in whole lines, each behind its task's name, coloured on a terminal. On a terminal the
// chief draws for itself.
//
// Restarts tasks that exit, as restart_policy.h says. So that a restarted coordinator or ps can
// continue the job, tasks without --state_dir and --checkpoint_dir get them in a directory of this
// launch. That directory is removed when the job is over, so no last checkpoint is made there,
// unless for an evaluator. The launch waits until the evaluator has scored it. The first SIGINT,
// SIGTERM or SIGHUP drains the cluster, a second one kills it. No task outlives the thread that
// called this function, however that thread ends.
//
// Returns the exit code for this process: the chief's, or that of the task whose permanent failure
// ended the launch; 64 if the options are not valid, 66 if the program cannot be started, 74 if a
// directory or log file cannot be made. REQUIRES: called once, on the main thread, while there is
// no other thread (it blocks signals).
int Launch(const LaunchOptions& options);

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_LAUNCH_H_
