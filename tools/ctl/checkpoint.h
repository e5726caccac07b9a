// What stands in a directory of checkpoints, told to people; no cluster is needed.
//
// A path names a checkpoint as OpenCheckpoint says.
//
// Errors of all: NotFound, no such directory or checkpoint; DataLoss, damaged: which file, where.
// Others: BundleReader's.
#ifndef DIVVY_TOOLS_CTL_CHECKPOINT_H_
#define DIVVY_TOOLS_CTL_CHECKPOINT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_system.h"

namespace divvy {

// A table of the checkpoints of a directory: steps, tensors, bytes, and whether the files are
// whole. The bytes of tensors are not looked at.
absl::StatusOr<std::string> DescribeCheckpoints(FileSystem& files, const std::string& directory);

// A table of a checkpoint's tensors.
absl::StatusOr<std::string> DescribeCheckpoint(FileSystem& files, const std::string& path);

// Reads all bytes of a checkpoint, or of all checkpoints of a directory, and compares every
// checksum. Appends to `report` a line for each checkpoint that is whole and one for each damage.
// DataLoss: there is some.
absl::Status VerifyCheckpoints(FileSystem& files, const std::string& path, std::string& report);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_CHECKPOINT_H_
