// Describes and verifies the checkpoints of a directory for an operator, without a cluster.
//
// A path names a checkpoint as for OpenCheckpoint. All functions block on the disk.
//
// Errors of all functions: NotFound if there is no such directory or checkpoint; DataLoss if it is
// damaged, with the file and the place; otherwise those of BundleReader.
#ifndef DIVVY_TOOLS_CTL_CHECKPOINT_H_
#define DIVVY_TOOLS_CTL_CHECKPOINT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_system.h"

namespace divvy {

// A table of the checkpoints in a directory: steps, tensors, bytes, and whether the files are
// complete. Does not read the bytes of tensors.
absl::StatusOr<std::string> DescribeCheckpoints(FileSystem& files, const std::string& directory);

// A table of a checkpoint's tensors.
absl::StatusOr<std::string> DescribeCheckpoint(FileSystem& files, const std::string& path);

// Reads all bytes of a checkpoint, or of all checkpoints in a directory, and compares every
// checksum. Appends to `report` a line for each sound checkpoint and for each damage. DataLoss: at
// least one is damaged.
absl::Status VerifyCheckpoints(FileSystem& files, const std::string& path, std::string& report);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_CHECKPOINT_H_
