// Finds and opens checkpoints by name, of Divvy or of another program (formats/tensor_bundle.h).
//
// A checkpoint is named by its prefix ("/ckpt/ckpt-3-17", with or without ".index"), or by a
// directory, which means the newest whole checkpoint in it. Among Divvy's own, "ckpt-EPOCH-SERIAL",
// the newest has the highest epoch, and then the highest serial. Checkpoints of other programs
// count as older than these. The newest of them is the one that TensorFlow's file "checkpoint"
// names; the rest are ordered by name.
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
#include "formats/tensor_bundle.h"
#include "protocol/ids.h"

namespace divvy {

// uint8 [n]: a serialized JobState.
constexpr char kJobTensor[] = "_divvy/job";
// int64 []: the number of training steps, for people.
constexpr char kFinishedStepsTensor[] = "_divvy/finished_steps";

// "ckpt-3-17" -> the id. Nullopt: the name is not of this form. Pure.
std::optional<CheckpointId> CheckpointOf(absl::string_view name);

// Makes `name` the checkpoint that tf.train.latest_checkpoint finds in `directory`.
// Blocks. Errors: those of FileSystem::ReplaceFile.
absl::Status NameNewest(FileSystem& files, const std::string& directory, absl::string_view name);

// The prefixes of the checkpoints in `directory`, newest first. Blocks. NotFound: the directory
// does not exist or has no checkpoint.
absl::StatusOr<std::vector<std::string>> CheckpointPrefixes(FileSystem& files,
                                                            const std::string& directory);

// As CheckpointPrefixes, for `path`. If `path` is not a directory it names one checkpoint, and the
// result is the prefix of that checkpoint, whether the checkpoint exists or not.
absl::StatusOr<std::vector<std::string>> CheckpointsAt(FileSystem& files, const std::string& path);

// Whether this read error means that nobody can ever read the checkpoint: it is damaged, or one of
// its files is a directory, a pipe or a link. A caller that was given a directory then tries an
// older checkpoint. Any other error (a failing disk or network, missing rights) may hide a whole
// checkpoint, so the caller must not fall back to an older one. Pure.
bool IsUnreadable(const absl::Status& status);

// Opens the checkpoint that `path` names. For a directory, opens the newest one that is not
// unreadable, and logs an error for each one that it skips. Blocks. NotFound: the directory or
// checkpoint does not exist. DataLoss: the checkpoint is damaged; the message names the file and
// the place. If all checkpoints of a directory are unreadable, the error is that of the newest one.
// Other errors: those of BundleReader.
absl::StatusOr<std::unique_ptr<BundleReader>> OpenCheckpoint(FileSystem& files,
                                                             const std::string& path);

// The value of kFinishedStepsTensor; -1 if the checkpoint has none.
absl::StatusOr<int64_t> FinishedStepsOf(const BundleReader& checkpoint);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CHECKPOINT_OPEN_CHECKPOINT_H_
