// Warns about a task that does not know where its coordinator is.
#ifndef DIVVY_TASK_NO_COORDINATOR_NOTE_H_
#define DIVVY_TASK_NO_COORDINATOR_NOTE_H_

#include <functional>
#include <string>

#include "base/executor.h"

namespace divvy {

// Logs a warning now and every minute while `waits` returns true: `task` (e.g. "worker 1") cannot
// register, since its configuration does not name the coordinator, so it waits until the
// coordinator dials it. `waits` may change between true and false at any time. It runs as a task of
// `executor` for as long as the executor runs. Does not block. REQUIRES: the objects that `waits`
// uses live until `executor` has stopped.
void WarnOfNoCoordinator(Executor& executor, std::string task, std::function<bool()> waits);

}  // namespace divvy

#endif  // DIVVY_TASK_NO_COORDINATOR_NOTE_H_
