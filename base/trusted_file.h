// Whether code may be loaded from a file: nobody but root and this user can have put it there.
#ifndef DIVVY_BASE_TRUSTED_FILE_H_
#define DIVVY_BASE_TRUSTED_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace divvy {

// OK unless this process has more rights than its user: its file has the set-user-ID or
// set-group-ID bit, or capabilities (AT_SECURE). Such a process loads no code, from wherever: its
// user chose the folder, the flags and the environment. PermissionDenied. Thread-safe.
absl::Status CheckMayLoadCode();

// OK if `path`, followed through links, is a file that belongs to root or to this user and that no
// other user may write. Else, naming the fix but not `path`: NotFound; InvalidArgument (not a
// file); PermissionDenied. `what` is what it should be: "the program's library". Blocks on the file
// system. Thread-safe.
absl::Status CheckTrustedFile(const std::string& path, absl::string_view what);

// The same of the folder that `path` stands in and, if `path` is a link, of the folder that it
// leads to: no other user can put another file in its place. PermissionDenied also for a folder
// with the sticky bit, such as /tmp: whoever may make files there may make this one where it is
// missing.
absl::Status CheckTrustedFolder(const std::string& path);

// OK if code may be loaded from `path`: CheckTrustedFile, then CheckTrustedFolder.
absl::Status CheckTrustedCode(const std::string& path, absl::string_view what);

// OK if the folder itself belongs to root or to this user and no other user may write it; errors as
// CheckTrustedFolder.
absl::Status CheckOwnFolder(const std::string& folder);

}  // namespace divvy

#endif  // DIVVY_BASE_TRUSTED_FILE_H_
