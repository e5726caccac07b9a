// A parameter server's part of a checkpoint, as a data file of a tensor bundle
// (docs/formats/checkpoint.md).
#ifndef DIVVY_PS_SERVER_CHECKPOINT_BUNDLE_FILES_H_
#define DIVVY_PS_SERVER_CHECKPOINT_BUNDLE_FILES_H_

#include <memory>
#include <string>

#include "base/file_system.h"
#include "ps_server/core/checkpoint_files.h"

namespace divvy {

// The checkpoint files in `directory`, which all tasks of the job share. REQUIRES: `files` outlives
// the result and the objects that it makes.
std::unique_ptr<CheckpointFiles> MakeBundleFiles(FileSystem& files, std::string directory);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CHECKPOINT_BUNDLE_FILES_H_
