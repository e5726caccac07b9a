// `divvyctl launch`: a cluster of processes on this machine.
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
  // The program and its arguments, the same for every task; a name without a slash is looked for in
  // PATH.
  std::vector<std::string> command;
  // A directory for <task>.log; "": none.
  std::string logs;
  // A random task is SIGKILLed at that period; 0: never.
  absl::Duration chaos;
  // whom it may hit: worker, ps, coordinator
  std::vector<std::string> chaos_roles = {"worker"};
  // Of --chaos; 0: takes one and prints it.
  uint64_t seed = 0;
  // Of one task within 10 minutes.
  int max_restarts = 5;
  // A process more, which scores the checkpoints of the job (an evaluator,
  // docs/operating/operations.md).
  bool evaluator = false;
  // says at the end what each task has used: processor time and memory, over all its lives
  bool usage = false;

  // Everything that is wrong, at once (InvalidArgument).
  absl::Status Validate() const;
};

// Runs one process for each task with TF_CONFIG set, on Unix sockets in a directory that no other
// user may enter, until the job is over. Blocks. What they print comes on standard error, whole
// lines with the task's name before them, coloured on a terminal; there the chief draws for itself.
// Starts again what dies (restart_policy.h): so that a coordinator or ps that does can go on with
// the job, tasks that were told of no --state_dir and --checkpoint_dir have them in a directory of
// this launch, which goes when the job is over: no checkpoint is made at its end there, unless for
// an evaluator, which is waited for. SIGINT, SIGTERM and SIGHUP drain, a second one kills. No task
// outlives the thread that called this, however it dies.
//
// Returns the exit code for this process: the chief's; that of the task whose permanent failure
// ended the launch; 64 if the options are not valid, 66 if the program cannot be started, 74 if no
// directory or log file can be had. REQUIRES: called once, on the main thread, while there is no
// other (it holds back signals).
int Launch(const LaunchOptions& options);

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_LAUNCH_H_
