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

namespace divvy {
namespace {

std::string TemporaryDirectory() {
  const char* const given = std::getenv("TMPDIR");
  return given == nullptr || *given == 0 ? "/tmp" : given;
}

}  // namespace

absl::StatusOr<WorkingDirectory> WorkingDirectory::Make() {
  WorkingDirectory directory(absl::StrCat(TemporaryDirectory(), "/divvy-launch-", absl::Hex(EntropySeed(), absl::kZeroPad16)));
  RETURN_IF_ERROR(FileSystem::Real().CreateDirectory(directory.path_));
  if (chmod(directory.path_.c_str(), 0700) != 0) {
    const absl::Status error =
        absl::ErrnoToStatus(errno, absl::StrCat("cannot close ", directory.path_, " to others: set TMPDIR to a directory of a file system with permissions"));
    directory.Remove();
    return error;
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

bool WorkingDirectory::HasCheckpoint() const { return FileSystem::Real().Stat(checkpoints() + "/checkpoint").ok(); }

std::string WorkingDirectory::Flags() const { return absl::StrCat("--state_dir=", state(), " --checkpoint_dir=", checkpoints()); }

void WorkingDirectory::Remove() const { RemoveTree(path_); }  // what is left is in nobody's way

}  // namespace divvy
