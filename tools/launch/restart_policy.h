// What the end of a task means for the others.
#ifndef DIVVY_TOOLS_LAUNCH_RESTART_POLICY_H_
#define DIVVY_TOOLS_LAUNCH_RESTART_POLICY_H_

#include "protocol/role.h"
#include "tools/launch/exit_status.h"

namespace divvy {

struct EndedTask {
  Role role = Role::kWorker;
  ExitStatus status;
  // --chaos killed it, or one that it cannot do without: does not count
  bool by_chaos = false;
  // Of the last minutes that count (SupervisorOptions::window).
  int restarts = 0;
  int max_restarts = 0;
};

enum class Reaction {
  kLetGo,    // it is done; the others go on
  kRestart,  // start it again
  kLinger,   // the job is complete: the others are about to end by themselves
  kDrain,    // nothing good can come of going on
};

struct Verdict {
  Reaction reaction = Reaction::kLetGo;
  // Of kLinger and kDrain: the whole launch ends with it.
  int exit_code = 0;
};

// A code below 128 is permanent: the task would end so again. From 128 on (a signal, a drain, peers
// unreachable) a task of any role is started again, until it has been started again max_restarts
// times within the window (a crash loop: 70): a life that is short and one that ends at the same
// moment again and again count alike. Nobody waits for an evaluator, so its failure is its own. The
// job is over when its chief ends with 0. (Exit codes: docs/operating/operations.md; the line at
// 128 is Kubeflow's.)
Verdict RestartPolicy(const EndedTask& task);

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_RESTART_POLICY_H_
