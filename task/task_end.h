// How a task's process ends.
#ifndef DIVVY_TASK_TASK_END_H_
#define DIVVY_TASK_TASK_END_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/termination.h"

namespace divvy {

// Blocks until the process is to end, and returns its exit code. A signal calls `drain`, which is
// to lead to a Request; that is waited for at most `drain_timeout`, and a second signal kills. Says
// in the log what happened. `task`: "worker 1". Once it has returned the process ends within 3 s,
// even if a destructor waits for a step function that never returns.
int AwaitEnd(Termination& termination, absl::string_view task, const std::function<void()>& drain,
             absl::Duration drain_timeout);

// Says on standard error why a task cannot start, and returns the exit code: 78 for configuration
// (TF_CONFIG, flags, certificates, an address), else as a job that ended so.
int RefuseToStart(const absl::Status& why);

}  // namespace divvy

#endif  // DIVVY_TASK_TASK_END_H_
