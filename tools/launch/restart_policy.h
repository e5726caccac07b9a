// Decides what the end of one task means for the others.
#ifndef DIVVY_TOOLS_LAUNCH_RESTART_POLICY_H_
#define DIVVY_TOOLS_LAUNCH_RESTART_POLICY_H_

#include "protocol/role.h"
#include "tools/launch/exit_status.h"

namespace divvy {

struct EndedTask {
  Role role = Role::kWorker;
  ExitStatus status;
  // --chaos killed the task, or another one that it needs. Such an end does not count as a restart.
  bool by_chaos = false;
  // Its restarts within SupervisorOptions::window.
  int restarts = 0;
  int max_restarts = 0;
};

enum class Reaction {
  kAwait,    // the job may be complete: restart the task if the chief still runs after a while
  kLetGo,    // the task is finished; the others go on
  kRestart,  // restart the task
  kLinger,   // the job is complete: the others are about to end by themselves
  kDrain,    // the job cannot continue: drain the others
};

struct Verdict {
  Reaction reaction = Reaction::kLetGo;
  // For kLinger and kDrain: the exit code of the launch.
  int exit_code = 0;
};

// The rules (exit codes: docs/operating/operations.md):
//   - The chief's exit with 0 ends the job.
//   - A worker's exit with 0 is its part of that end, or its program has ended the process.
//   - A code below 128 is permanent: the task would end like this again.
//   - After a code of 128 or more (a signal, a drain, unreachable peers) a task of any role is
//     restarted. After max_restarts restarts within the window it is in a crash loop, which ends
//     the launch with 70. Lives that are short and lives that end at the same moment count alike.
//   - The job does not need an evaluator, so a failed one does not end the launch.
// The line at 128 is Kubeflow's. Pure.
Verdict RestartPolicy(const EndedTask& task);

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_RESTART_POLICY_H_
