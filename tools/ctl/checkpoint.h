// What stands in a directory of checkpoints, told to people; no cluster is needed.
//
// A checkpoint is named by its prefix ("/ckpt/ckpt-3-17", with ".index" or without) or, where a directory is given, is the newest whole one in it. The newest
// of Divvy's own, "ckpt-EPOCH-SERIAL", is that of the highest epoch, then serial; others stand behind these, by name.
//
// Errors of all: NotFound, no such directory or checkpoint; DataLoss, damaged: which file, where. Others: BundleReader's.
#ifndef DIVVY_TOOLS_CTL_CHECKPOINT_H_
#define DIVVY_TOOLS_CTL_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file_system.h"
#include "formats/tensor_bundle.h"

namespace divvy {

// The prefixes of the checkpoints in `directory`, newest first. NotFound also where there is none.
absl::StatusOr<std::vector<std::string>> CheckpointPrefixes(FileSystem& files, const std::string& directory);

// The checkpoint that `path` names. DataLoss: all of the directory are damaged.
absl::StatusOr<std::unique_ptr<BundleReader>> OpenCheckpoint(FileSystem& files, const std::string& path);

// A table of the checkpoints of a directory: steps, tensors, bytes, and whether the files are whole. The bytes of tensors are not looked at.
absl::StatusOr<std::string> DescribeCheckpoints(FileSystem& files, const std::string& directory);

// A table of a checkpoint's tensors.
absl::StatusOr<std::string> DescribeCheckpoint(FileSystem& files, const std::string& path);

// Reads all bytes of a checkpoint, or of all checkpoints of a directory, and compares every checksum. Appends to `report` a line for each checkpoint that is
// whole and one for each damage. DataLoss: there is some.
absl::Status VerifyCheckpoints(FileSystem& files, const std::string& path, std::string& report);

// The tensor "_divvy/finished_steps" of a checkpoint, -1 if it has none.
absl::StatusOr<int64_t> FinishedStepsOf(const BundleReader& checkpoint);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_CHECKPOINT_H_
