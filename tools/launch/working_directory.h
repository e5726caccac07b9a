// The directory of a launch, for the state of jobs whose flags name none.
#ifndef DIVVY_TOOLS_LAUNCH_WORKING_DIRECTORY_H_
#define DIVVY_TOOLS_LAUNCH_WORKING_DIRECTORY_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace divvy {

// A new directory of one launch under TMPDIR or /tmp. Only its user can enter it. Another launch
// has another directory, so it never finds the state of a finished job. Not thread-safe.
class WorkingDirectory {
 public:
  // Makes the directory. Errors name it.
  static absl::StatusOr<WorkingDirectory> Make();

  // What happens to the last checkpoint of a complete job, before the directory is removed.
  enum class LastCheckpoint { kUnwanted, kScored };
  // The environment for tasks: DIVVY_STATE_DIR and DIVVY_CHECKPOINT_DIR, which count for tasks
  // without --state_dir and --checkpoint_dir. Variables that this process has keep their values.
  // With kUnwanted also DIVVY_TEMPORARY, so that no last checkpoint is made.
  std::map<std::string, std::string> Environment(LastCheckpoint last) const;
  std::string state() const { return path_ + "/state"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  const std::string& path() const { return path_; }
  // The directory of the tasks' Unix sockets. It is inside this directory or, if that path cannot
  // be a socket's (too long, relative, or with special characters), a second directory in /tmp.
  const std::string& sockets() const { return sockets_; }
  // Whether a checkpoint was made here.
  bool HasCheckpoint() const;
  // The flags by which another launch resumes the job in this directory.
  std::string Flags() const;
  // Removes the directory with all that is in it, as far as possible.
  void Remove() const;
  // Removes only the sockets.
  void RemoveSockets() const;

 private:
  explicit WorkingDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_, sockets_;
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_WORKING_DIRECTORY_H_
