// Checkpoints by their names, of Divvy or of another program (formats/tensor_bundle.h).
//
// A checkpoint is named by its prefix ("/ckpt/ckpt-3-17", with ".index" or without) or, where a
// directory is given, is the newest whole one in it. The newest of Divvy's own,
// "ckpt-EPOCH-SERIAL", is that of the highest epoch, then serial; others stand behind these: the
// one that TensorFlow's file "checkpoint" names, then by name.
#ifndef DIVVY_COORDINATOR_CHECKPOINT_OPEN_CHECKPOINT_H_
#define DIVVY_COORDINATOR_CHECKPOINT_OPEN_CHECKPOINT_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file_system.h"
#include "cluster/ids.h"
#include "formats/tensor_bundle.h"

namespace divvy {

// uint8 [n]: a serialized JobState
constexpr char kJobTensor[] = "_divvy/job";
// int64 []: for people
constexpr char kFinishedStepsTensor[] = "_divvy/finished_steps";

// "ckpt-3-17" -> the id; nullopt: another file's name.
std::optional<CheckpointId> CheckpointOf(absl::string_view name);

// Makes `name` the one that TensorFlow finds in `directory` (tf.train.latest_checkpoint). Blocks.
// Errors: FileSystem::ReplaceFile.
absl::Status NameNewest(FileSystem& files, const std::string& directory, absl::string_view name);

// The prefixes of the checkpoints in `directory`, newest first. NotFound also where there is none.
absl::StatusOr<std::vector<std::string>> CheckpointPrefixes(FileSystem& files,
                                                            const std::string& directory);

// The same of `path`, which names a directory or one checkpoint: then its prefix, whether there is
// one or not.
absl::StatusOr<std::vector<std::string>> CheckpointsAt(FileSystem& files, const std::string& path);

// Whether a checkpoint that was read with this error can never be read, by nobody: it is damaged,
// or one of its files is a directory, a pipe or a link. Of a directory, an older one is then taken.
// Any other error (a disk or a network that fails now, missing rights) hides a checkpoint that may
// be whole. Pure.
bool IsUnreadable(const absl::Status& status);

// The checkpoint that `path` names; of a directory, the newest that is not unreadable, with an
// error in the log for each that is passed over. NotFound: no such directory or checkpoint.
// DataLoss: it is damaged, which file and where. Others: BundleReader's. Where all of a directory
// are unreadable: the newest's error.
absl::StatusOr<std::unique_ptr<BundleReader>> OpenCheckpoint(FileSystem& files,
                                                             const std::string& path);

// What kFinishedStepsTensor of a checkpoint holds, -1 if it has none.
absl::StatusOr<int64_t> FinishedStepsOf(const BundleReader& checkpoint);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CHECKPOINT_OPEN_CHECKPOINT_H_
