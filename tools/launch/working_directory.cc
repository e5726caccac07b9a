#include "tools/launch/working_directory.h"

#include <errno.h>
#include <sys/stat.h>

#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/random.h"
#include "base/remove_tree.h"
#include "base/status_macros.h"
#include "cluster/task_address.h"

namespace divvy {
namespace {

std::string TemporaryDirectory() {
  const char* const given = std::getenv("TMPDIR");
  return given == nullptr || *given == 0 ? "/tmp" : given;
}

constexpr char kLongestSocketName[] = "/worker-65534";

std::string NewNameBelow(const std::string& directory) {
  return absl::StrCat(directory, "/divvy-launch-", absl::Hex(EntropySeed(), absl::kZeroPad16));
}

absl::Status MakeForUserAlone(const std::string& path) {
  RETURN_IF_ERROR(FileSystem::Real().CreateDirectory(path));
  if (chmod(path.c_str(), 0700) == 0) return absl::OkStatus();
  const absl::Status error = absl::ErrnoToStatus(
      errno,
      absl::StrCat("cannot restrict ", path,
                   " to its owner: set TMPDIR to a directory on a file system with permissions"));
  RemoveTree(path);
  return error;
}

}  // namespace

absl::StatusOr<WorkingDirectory> WorkingDirectory::Make() {
  WorkingDirectory directory(NewNameBelow(TemporaryDirectory()));
  RETURN_IF_ERROR(MakeForUserAlone(directory.path_));
  directory.sockets_ = directory.path_ + "/sockets";
  if (!NormalizeAddress(absl::StrCat("unix:", directory.sockets_, kLongestSocketName)).ok())
    directory.sockets_ = NewNameBelow("/tmp");
  if (const absl::Status made = MakeForUserAlone(directory.sockets_); !made.ok()) {
    directory.Remove();
    return made;
  }
  return directory;
}

std::map<std::string, std::string> WorkingDirectory::Environment(LastCheckpoint last) const {
  std::map<std::string, std::string> environment;
  if (std::getenv("DIVVY_STATE_DIR") == nullptr) environment["DIVVY_STATE_DIR"] = state();
  if (std::getenv("DIVVY_CHECKPOINT_DIR") != nullptr) return environment;
  environment["DIVVY_CHECKPOINT_DIR"] = checkpoints();
  if (last == LastCheckpoint::kUnwanted) environment["DIVVY_TEMPORARY"] = "1";
  return environment;
}

bool WorkingDirectory::HasCheckpoint() const {
  return FileSystem::Real().Stat(checkpoints() + "/checkpoint").ok();
}

std::string WorkingDirectory::Flags() const {
  return absl::StrCat("--state_dir=", state(), " --checkpoint_dir=", checkpoints());
}

// Files that cannot be removed do no harm.
void WorkingDirectory::Remove() const {
  RemoveSockets();
  RemoveTree(path_);
}

void WorkingDirectory::RemoveSockets() const { RemoveTree(sockets_); }

}  // namespace divvy
