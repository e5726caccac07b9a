// The checkpoints of a job, as tensor bundles in one directory (docs/formats/checkpoint.md).
#ifndef DIVVY_COORDINATOR_CHECKPOINT_BUNDLE_CATALOG_H_
#define DIVVY_COORDINATOR_CHECKPOINT_BUNDLE_CATALOG_H_

#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "coordinator/core/checkpoint_catalog.h"

namespace divvy {

// The checkpoints that are committed in `directory`, newest first. NotFound: there is no such
// directory.
absl::StatusOr<std::vector<CheckpointId>> ListCheckpoints(FileSystem& files,
                                                          const std::string& directory);

// What a checkpoint says of its job. NotFound; DataLoss: damaged, or no checkpoint of Divvy's;
// kVersionMismatch: whole, and written by another version of Divvy that says it otherwise.
absl::StatusOr<JobState> ReadJobState(FileSystem& files, const std::string& directory,
                                      CheckpointId checkpoint);

// Makes the directory, if it is missing. Errors name it. REQUIRES: `files` outlives the catalog.
absl::StatusOr<std::unique_ptr<CheckpointCatalog>> OpenBundleCatalog(FileSystem& files,
                                                                     const std::string& directory);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CHECKPOINT_BUNDLE_CATALOG_H_
