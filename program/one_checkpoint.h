// One checkpoint of a directory, for a process that only reads it.
#ifndef DIVVY_PROGRAM_ONE_CHECKPOINT_H_
#define DIVVY_PROGRAM_ONE_CHECKPOINT_H_

#include <memory>
#include <string>

#include "base/file_system.h"
#include "coordinator/core/checkpoint_catalog.h"
#include "ps_server/core/checkpoint_files.h"

namespace divvy {

// The two views of a directory (the parameter servers' and the coordinator's) that contain nothing
// but one checkpoint. Optimizer slots and unfinished passes over the data are left out. Nothing is
// ever written, so a job that trains with the same directory is not disturbed: an attempt to make
// or export a checkpoint returns FailedPrecondition. REQUIRES: `files` outlives the results.
std::unique_ptr<CheckpointFiles> FilesOfOneCheckpoint(FileSystem& files,
                                                      const std::string& directory);
std::unique_ptr<CheckpointCatalog> CatalogOfOneCheckpoint(FileSystem& files,
                                                          const std::string& directory,
                                                          CheckpointId checkpoint);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_ONE_CHECKPOINT_H_
