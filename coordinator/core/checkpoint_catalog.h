// Which checkpoints there are, and when one is whole: the coordinator's side of the directory that
// all tasks share.
#ifndef DIVVY_COORDINATOR_CORE_CHECKPOINT_CATALOG_H_
#define DIVVY_COORDINATOR_CORE_CHECKPOINT_CATALOG_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/job_state.h"
#include "cluster/messages.h"
#include "strategy/export_options.h"

namespace divvy {

// Thread-safe. Blocks: the core calls it from blocking tasks of the Executor (and Newest once from
// Start). Errors name the file and the remedy.
class CheckpointCatalog {
 public:
  virtual ~CheckpointCatalog() = default;

  // The newest checkpoint that is committed, and below `below` where that is given; nullopt: there
  // is none. One whose index is damaged is passed over with a word in the log. DataLoss: there are
  // some, and all are damaged. kVersionMismatch: another version of Divvy has written it, and this
  // one cannot read what it says of the job. Unavailable: the device failed while it was read. Else
  // the disk's error.
  virtual absl::StatusOr<std::optional<JobState>> Newest(std::optional<CheckpointId> below) = 0;

  // Makes the checkpoint whole at one moment: checks that the slices tile every tensor of
  // `state.layout` and that the files are as long as they say (which also finds a directory that is
  // not the ps' own), writes `state`, then the index under its name. `parts`: by data file, of
  // state.checkpoint. An error before that moment: it is no checkpoint, and never becomes one.
  // DataLoss: what was written does not fit together. kWrongJob: another job has made the directory
  // its own since this one looked for checkpoints. Aborted: it cannot be known whether the name is
  // on the disk (a sync failed after the rename): end the process, the next start looks.
  virtual absl::Status Commit(const JobState& state,
                              const std::vector<std::vector<SavedSlice>>& parts) = 0;

  // Removes old checkpoints but the newest `keep` (at least 2 of which stay) and `base`, and the
  // data files of those given up: of ids below `below`, without an index. Appends to `removed`
  // those of which nothing is left. May run beside a Commit of `below` or a later one. kWrongJob:
  // as of Commit; nothing is removed.
  virtual absl::Status Collect(int keep, CheckpointId base, CheckpointId below,
                               std::vector<CheckpointId>& removed) = 0;

  // Writes the variables and slots of a checkpoint for other programs, as Coordinator::Export says.
  // NotFound: there is no such checkpoint.
  virtual absl::Status Export(CheckpointId checkpoint, const std::string& path,
                              const ExportOptions& options) = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_CHECKPOINT_CATALOG_H_
