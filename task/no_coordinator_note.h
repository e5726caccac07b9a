// A task that was not told where its coordinator is does not wait in silence.
#ifndef DIVVY_TASK_NO_COORDINATOR_NOTE_H_
#define DIVVY_TASK_NO_COORDINATOR_NOTE_H_

#include <functional>
#include <string>

#include "base/executor.h"

namespace divvy {

// Warns now and each minute, for as long as `waits` says so when it is asked: `task` ("worker 1")
// cannot register, since nobody has told it where the coordinator is, and so waits until the
// coordinator dials it. When `waits` has said no it may say yes again. Asked as a task of
// `executor`, which outlives what `waits` uses.
void WarnOfNoCoordinator(Executor& executor, std::string task, std::function<bool()> waits);

}  // namespace divvy

#endif  // DIVVY_TASK_NO_COORDINATOR_NOTE_H_
