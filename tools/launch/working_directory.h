// Where the job of a launch is remembered when nobody has said where.
#ifndef DIVVY_TOOLS_LAUNCH_WORKING_DIRECTORY_H_
#define DIVVY_TOOLS_LAUNCH_WORKING_DIRECTORY_H_

#include <map>
#include <string>

#include "absl/status/statusor.h"

namespace divvy {

// A directory of one launch, new, below TMPDIR or /tmp, for its user's eyes alone: a job that is
// over is not found there by the next. Not thread-safe.
class WorkingDirectory {
 public:
  // Makes it. An error names it.
  static absl::StatusOr<WorkingDirectory> Make();

  // Of a job that is complete: the directory goes with it.
  enum class LastCheckpoint { kUnwanted, kScored };
  // DIVVY_STATE_DIR and DIVVY_CHECKPOINT_DIR, for tasks that are given no --state_dir and
  // --checkpoint_dir; but those that this process has keep what they say. DIVVY_TEMPORARY, where
  // nobody wants the last checkpoint.
  std::map<std::string, std::string> Environment(LastCheckpoint last) const;
  std::string state() const { return path_ + "/state"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  const std::string& path() const { return path_; }
  // Where the tasks' Unix sockets are: in it, or in a second such directory of /tmp where its path
  // is not one for a socket: too long, relative, or with odd characters.
  const std::string& sockets() const { return sockets_; }
  // Whether a checkpoint was made here.
  bool HasCheckpoint() const;
  // The flags by which another launch goes on from here.
  std::string Flags() const;
  // Removes it with all that is in it, as far as that can be.
  void Remove() const;
  // Removes the sockets alone.
  void RemoveSockets() const;

 private:
  explicit WorkingDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_, sockets_;
};

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_WORKING_DIRECTORY_H_
