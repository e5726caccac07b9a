// Checks whether code may be loaded from a file: only root and this user can have written it.
#ifndef DIVVY_BASE_TRUSTED_FILE_H_
#define DIVVY_BASE_TRUSTED_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace divvy {

// OK unless this process has more rights than the user who started it: its executable has the
// set-user-ID or set-group-ID bit, or capabilities (AT_SECURE). Such a process must load no code
// from anywhere, because that user chooses the folders, the flags and the environment. Otherwise
// PermissionDenied. Thread-safe.
absl::Status CheckMayLoadCode();

// OK if `path`, after following links, is a regular file that belongs to root or to this user and
// that no other user may write. `what` describes the expected file: "the program's library". The
// message says how to fix the problem, and does not name `path`.
//
// NotFound: there is no such file. InvalidArgument: it is not a regular file. PermissionDenied:
// another user owns it or may write it, or it cannot be accessed. Blocks on the file system.
// Thread-safe.
absl::Status CheckTrustedFile(const std::string& path, absl::string_view what);

// Makes the same check for the folder of `path` and, if `path` is a link, for the folder of its
// target. So no other user can replace the file. PermissionDenied also for a folder with the sticky
// bit, such as /tmp: another user could create the file there while it does not exist.
absl::Status CheckTrustedFolder(const std::string& path);

// OK if code may be loaded from `path`: CheckTrustedFile, then CheckTrustedFolder.
absl::Status CheckTrustedCode(const std::string& path, absl::string_view what);

// OK if the folder itself belongs to root or to this user and no other user may write it. Errors as
// CheckTrustedFolder.
absl::Status CheckOwnFolder(const std::string& folder);

}  // namespace divvy

#endif  // DIVVY_BASE_TRUSTED_FILE_H_
