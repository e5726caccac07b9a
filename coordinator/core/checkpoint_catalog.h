// The coordinator's view of the checkpoint directory that all tasks share: which checkpoints exist,
// which is the newest, and the commit that makes one whole.
#ifndef DIVVY_COORDINATOR_CORE_CHECKPOINT_CATALOG_H_
#define DIVVY_COORDINATOR_CORE_CHECKPOINT_CATALOG_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "protocol/job_state.h"
#include "protocol/messages.h"
#include "strategy/export_options.h"

namespace divvy {

// The checkpoints of one job. Thread-safe. Every method blocks on the disk: the core calls them
// from blocking tasks of the Executor, and calls Newest once from Start. Error messages name the
// file and the remedy.
class CheckpointCatalog {
 public:
  virtual ~CheckpointCatalog() = default;

  // The newest committed checkpoint, or the newest below `below` if that is given. Nullopt: there
  // is none. A checkpoint with a damaged index is skipped, with a line in the log.
  //
  // Errors: DataLoss: checkpoints exist, and all of them are damaged. kVersionMismatch: the newest
  // was written by another version of Divvy, and this version cannot read its job state.
  // Unavailable: the device failed during the read; the checkpoint may be whole, so try again. Any
  // other error is the disk's.
  virtual absl::StatusOr<std::optional<JobState>> Newest(std::optional<CheckpointId> below) = 0;

  // Makes the checkpoint whole, in one atomic step. First checks that the slices tile every tensor
  // of `state.layout` and that each data file has the length that its ps reported. (The length
  // check also detects a ps that writes to another directory.) Then writes `state`, and last
  // renames the index to its final name. `parts`: the saved slices, by data file of
  // state.checkpoint.
  //
  // An error before the rename means that this id is not a checkpoint and never becomes one.
  // DataLoss: the written parts do not fit together. kWrongJob: another job has taken the directory
  // since this catalog looked for checkpoints. Aborted: a sync failed after the rename, so it is
  // not known whether the name is on the disk. The caller must end the process; the next start
  // looks at the directory again.
  virtual absl::Status Commit(const JobState& state,
                              const std::vector<std::vector<SavedSlice>>& parts) = 0;

  // Removes old checkpoints. Keeps the newest `keep` (never fewer than 2) and `base`. Also removes
  // the data files of abandoned attempts: those with an id below `below` and no index. Appends to
  // `removed` each id of which no file is left. May run concurrently with a Commit of `below` or of
  // a later id. kWrongJob: as for Commit; nothing is removed.
  virtual absl::Status Collect(int keep, CheckpointId base, CheckpointId below,
                               std::vector<CheckpointId>& removed) = 0;

  // Writes the variables and slots of a checkpoint to `path` in a format for other programs
  // (Coordinator::Export). NotFound: the checkpoint does not exist.
  virtual absl::Status Export(CheckpointId checkpoint, const std::string& path,
                              const ExportOptions& options) = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_CHECKPOINT_CATALOG_H_
