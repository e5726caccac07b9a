// What stands in a coordinator's state directory, told to people, and the repair of numbers that
// cannot be.
#ifndef DIVVY_TOOLS_CTL_STATE_H_
#define DIVVY_TOOLS_CTL_STATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file_system.h"
#include "coordinator/core/store.h"

namespace divvy {

// The functions that take a directory block on the disk. Errors: NotFound, there is no divvy.db;
// FailedPrecondition, a later version of Divvy wrote it; DataLoss, it is damaged; others as
// SqliteStore::Open.

// A few lines: the job, its state, epoch and lineage, its variables and checkpoints; and what
// RepairState would mend. Changes nothing there: it reads a copy under TMPDIR, and a coordinator
// may run on the directory.
absl::StatusOr<std::string> DescribeState(FileSystem& files, const std::string& directory);

// Mends epochs that no coordinator can have begun, of a job that cannot be started for them:
// RepairOf. Before that, it copies divvy.db to divvy.db.before-repair, in place of an older copy.
// Returns a line for each thing mended, or says that there is nothing to mend. FailedPrecondition,
// too, where a coordinator holds the directory. A file of an older version becomes one of this
// version.
absl::StatusOr<std::string> RepairState(FileSystem& files, const std::string& directory);

struct StateRepair {
  StoreChange change;             // empty where nothing is wrong
  std::vector<std::string> said;  // a line for each thing that `change` mends
};
// An epoch above kGreatestEpoch is nobody's, nor is one below an epoch that another row names: an
// overflow ended there. The job gets an epoch far above all that are named, because parameter
// servers and workers may have obeyed some that no row names; a coordinator takes its next from
// there. An odd lineage becomes none, so the next coordinator goes on from the newest checkpoint.
// Rows of checkpoints with such an epoch go; checkpoints themselves are found in their directory.
// Pure.
StateRepair RepairOf(const StoredJob& job);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_STATE_H_
