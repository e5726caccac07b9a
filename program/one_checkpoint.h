// One checkpoint of a directory, for who only reads it.
#ifndef DIVVY_PROGRAM_ONE_CHECKPOINT_H_
#define DIVVY_PROGRAM_ONE_CHECKPOINT_H_

#include <memory>
#include <string>

#include "base/file_system.h"
#include "coordinator/core/checkpoint_catalog.h"
#include "ps_server/core/checkpoint_files.h"

namespace divvy {

// Both sides of a directory in which there is nothing but one checkpoint, without the optimizers'
// slots and the passes over data that were under way, and to which nothing is added: a job that
// trains there is not disturbed. REQUIRES: `files` outlives what it is given to.
std::unique_ptr<CheckpointFiles> FilesOfOneCheckpoint(FileSystem& files,
                                                      const std::string& directory);
std::unique_ptr<CheckpointCatalog> CatalogOfOneCheckpoint(FileSystem& files,
                                                          const std::string& directory,
                                                          CheckpointId checkpoint);

}  // namespace divvy

#endif  // DIVVY_PROGRAM_ONE_CHECKPOINT_H_
