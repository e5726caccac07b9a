// Tells an evaluator that its job is over. No task sends messages to an evaluator, so it reads a
// file beside the checkpoints (docs/formats/checkpoint.md).
#ifndef DIVVY_COORDINATOR_CHECKPOINT_JOB_END_H_
#define DIVVY_COORDINATOR_CHECKPOINT_JOB_END_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_system.h"

namespace divvy {

// The file exists from the end of a job until a coordinator takes the job up again. It is written
// after the last checkpoint has been committed. So a task that reads the file first and then lists
// the checkpoints sees the final one. All functions here block, and their errors name the file.

// Records that the job has ended for good, with this exit code.
absl::Status WriteJobEnd(FileSystem& files, const std::string& directory, int exit_code);
// Records that the job goes on. OK also if no end was recorded.
absl::Status RemoveJobEnd(FileSystem& files, const std::string& directory);
// Calls WriteJobEnd if there is an exit code, otherwise RemoveJobEnd. An error is only logged,
// because its only effect is that an evaluator does not learn of the end.
void TellEvaluator(FileSystem& files, const std::string& directory, std::optional<int> exit_code);
// The exit code that the job ended with. Nullopt: it has not ended. DataLoss: the file has other
// content.
absl::StatusOr<std::optional<int>> ReadJobEnd(FileSystem& files, const std::string& directory);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CHECKPOINT_JOB_END_H_
