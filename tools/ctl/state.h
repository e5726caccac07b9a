// Describes a coordinator's state directory for an operator, and repairs epochs in it that are not
// valid.
#ifndef DIVVY_TOOLS_CTL_STATE_H_
#define DIVVY_TOOLS_CTL_STATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file_system.h"
#include "coordinator/core/store.h"

namespace divvy {

// The functions that take a directory block on the disk. Errors: NotFound if there is no divvy.db,
// FailedPrecondition if a later version of Divvy wrote it, DataLoss if it is damaged; otherwise
// those of SqliteStore::Open.

// A few lines: the job, its state, epoch and lineage, its variables and checkpoints, and what
// RepairState would repair. Changes nothing: it reads a copy under TMPDIR, so a coordinator may run
// on the directory.
absl::StatusOr<std::string> DescribeState(FileSystem& files, const std::string& directory);

// Repairs epochs that no coordinator can have begun and that keep the job from starting, as
// RepairOf says. First copies divvy.db to divvy.db.before-repair, replacing an older copy. Returns
// a line for each repair, or says that there is nothing to repair. FailedPrecondition also means
// that a coordinator holds the directory. A file of an older version is upgraded to this version.
absl::StatusOr<std::string> RepairState(FileSystem& files, const std::string& directory);

struct StateRepair {
  StoreChange change;             // empty if there is nothing to repair
  std::vector<std::string> said;  // a line for each repair in `change`
};
// An epoch above kGreatestEpoch is not valid, and neither is a job's epoch below that of another
// row: it has overflowed. The job then gets an epoch far above all valid ones, from which the next
// coordinator counts on, because servers and workers may have obeyed epochs that no row has. A
// lineage that is not valid is removed, so the next coordinator continues from the newest
// checkpoint. Rows of checkpoints with such an epoch are removed; the checkpoints themselves are
// still found in their directory. Pure.
StateRepair RepairOf(const StoredJob& job);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_STATE_H_
