// The end of a task's process.
#ifndef DIVVY_TASK_TASK_END_H_
#define DIVVY_TASK_TASK_END_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/termination.h"

namespace divvy {

// Blocks until the process must end, and returns its exit code. A signal calls `drain`, which must
// lead to a Termination::Request. AwaitEnd waits for that request at most `drain_timeout`, and a
// second signal kills the process. Logs what happened; `task` is e.g. "worker 1". After AwaitEnd
// has returned, the process ends within 3 s even if a destructor waits for a step function that
// never returns.
int AwaitEnd(Termination& termination, absl::string_view task, const std::function<void()>& drain,
             absl::Duration drain_timeout);

// For a task whose work is done: returns `exit_code`. From now on SIGTERM and SIGINT kill the
// process, and it ends within 3 s even if a destructor waits for a step function that never
// returns. Never blocks.
int EndSoon(int exit_code);

// Prints on standard error why a task cannot start, and returns the exit code: 78 (EX_CONFIG) for
// the configuration (TF_CONFIG, flags, certificates, an address), otherwise the code of a job that
// ended with `why` (ExitCodeOf in protocol/error.h).
int RefuseToStart(const absl::Status& why);

}  // namespace divvy

#endif  // DIVVY_TASK_TASK_END_H_
