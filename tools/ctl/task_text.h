// What a task says of itself, as text for people.
#ifndef DIVVY_TOOLS_CTL_TASK_TEXT_H_
#define DIVVY_TOOLS_CTL_TASK_TEXT_H_

#include <string>
#include <vector>

#include "proto/divvy.pb.h"

namespace divvy {

// All are pure. The texts hold what the task sent: escape them (wire::Escaped) before they reach a
// terminal.

// "chief", "ps 0".
std::string TaskName(const v1::TaskStatus& status);
// The function of the running step and, for a training step, its number in the job. The step's id
// is not shown, because it leaps when a job is started again.
std::string LiveStep(const v1::WorkerStatus& worker);
// The numbers of its role: "8 shards, 1.5 MiB, 120 commits applied".
std::string Figures(const v1::TaskStatus& status);
// One line for each dynamic table of the job.
std::vector<std::string> TableLines(const v1::CoordinatorStatus& coordinator);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_TASK_TEXT_H_
