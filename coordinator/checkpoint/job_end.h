// How an evaluator, which nobody talks to, learns that its job is over: from a file beside the
// checkpoints (docs/formats/checkpoint.md).
#ifndef DIVVY_COORDINATOR_CHECKPOINT_JOB_END_H_
#define DIVVY_COORDINATOR_CHECKPOINT_JOB_END_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_system.h"

namespace divvy {

// The file is there from the end of a job, when its last checkpoint has been committed, until a
// coordinator takes the job up again. So who reads it, and then lists the checkpoints, has seen the
// final one. All of these block, and their errors name the file.

// The job has ended for good, with this exit code.
absl::Status WriteJobEnd(FileSystem& files, const std::string& directory, int exit_code);
// The job goes on. OK if it had not ended.
absl::Status RemoveJobEnd(FileSystem& files, const std::string& directory);
// One of the two above, by whether there is an exit code. What fails costs an evaluator its end and
// nobody anything else: it is logged.
void TellEvaluator(FileSystem& files, const std::string& directory, std::optional<int> exit_code);
// The exit code that the job ended with; nullopt: it has not. DataLoss: the file says something
// else.
absl::StatusOr<std::optional<int>> ReadJobEnd(FileSystem& files, const std::string& directory);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CHECKPOINT_JOB_END_H_
