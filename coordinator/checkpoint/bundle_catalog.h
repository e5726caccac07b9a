// The checkpoints of a job, stored as tensor bundles in one directory (docs/formats/checkpoint.md).
#ifndef DIVVY_COORDINATOR_CHECKPOINT_BUNDLE_CATALOG_H_
#define DIVVY_COORDINATOR_CHECKPOINT_BUNDLE_CATALOG_H_

#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "coordinator/core/checkpoint_catalog.h"

namespace divvy {

// The ids of the committed checkpoints in `directory`, newest first. Blocks. NotFound: the
// directory does not exist. An empty directory gives an empty list.
absl::StatusOr<std::vector<CheckpointId>> ListCheckpoints(FileSystem& files,
                                                          const std::string& directory);

// Reads the job state from a checkpoint. Blocks. NotFound: the checkpoint does not exist.
// DataLoss: it is damaged, or not written by Divvy. kVersionMismatch: it is whole, and another
// version of Divvy wrote its job state in another form.
absl::StatusOr<JobState> ReadJobState(FileSystem& files, const std::string& directory,
                                      CheckpointId checkpoint);

// Opens the catalog of `directory`, and makes the directory if it is missing. Blocks. Errors name
// the directory. REQUIRES: `files` outlives the catalog.
absl::StatusOr<std::unique_ptr<CheckpointCatalog>> OpenBundleCatalog(FileSystem& files,
                                                                     const std::string& directory);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CHECKPOINT_BUNDLE_CATALOG_H_
