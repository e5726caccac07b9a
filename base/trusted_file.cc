#include "base/trusted_file.h"

#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/path.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

bool IsOfSomebodyElse(const struct stat& info) {
  return info.st_uid != 0 && info.st_uid != geteuid();
}
bool IsOpenToOthers(const struct stat& info) { return (info.st_mode & (S_IWGRP | S_IWOTH)) != 0; }

absl::Status CheckFolder(const std::string& folder) {
  const absl::Status own = CheckOwnFolder(folder);
  return own.ok()
             ? own
             : absl::PermissionDeniedError(absl::StrCat(
                   "its folder ", own.message(), ". Whoever may write there could run code here"));
}

}  // namespace

absl::Status CheckMayLoadCode() {
  if (getauxval(AT_SECURE) == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      "this program has more rights than the user who started it, so it loads no library: take the "
      "set-user-ID and set-group-ID bits and the capabilities off "
      "its file");
}

absl::Status CheckOwnFolder(const std::string& folder) {
  struct stat info;
  if (stat(folder.c_str(), &info) != 0)
    return absl::PermissionDeniedError(
        absl::StrCat(folder, " cannot be accessed: ", strerror(errno)));
  if (IsOfSomebodyElse(info))
    return absl::PermissionDeniedError(absl::StrCat(folder, " belongs to user ", info.st_uid,
                                                    "; use a folder that belongs to this user"));
  if (!IsOpenToOthers(info)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(folder, " can be written by others; take another, or chmod go-w ", folder));
}

absl::Status CheckTrustedFile(const std::string& path, absl::string_view what) {
  struct stat info;
  if (stat(path.c_str(), &info) != 0) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR)
      return absl::NotFoundError(absl::StrCat("there is no such file; give the path of ", what));
    return absl::PermissionDeniedError(
        absl::StrCat(strerror(error), "; make it readable for this user"));
  }
  if (!S_ISREG(info.st_mode))
    return absl::InvalidArgumentError(absl::StrCat("is not a file; give the path of ", what));
  if (IsOfSomebodyElse(info)) {
    return absl::PermissionDeniedError(absl::StrCat("belongs to user ", info.st_uid,
                                                    ", whose code would run as user ", geteuid(),
                                                    "; chown it to root or to this user"));
  }
  if (!IsOpenToOthers(info)) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("can be written by others, whose code would run here; chmod go-w ", path));
}

absl::Status CheckTrustedCode(const std::string& path, absl::string_view what) {
  RETURN_IF_ERROR(CheckTrustedFile(path, what));
  return CheckTrustedFolder(path);
}

absl::Status CheckTrustedFolder(const std::string& path) {
  RETURN_IF_ERROR(CheckFolder(DirectoryOf(path)));
  const std::unique_ptr<char, decltype(&free)> real(realpath(path.c_str(), nullptr), &free);
  // A file that does not exist is not a link, so there is no second folder to check.
  return real == nullptr ? absl::OkStatus() : CheckFolder(DirectoryOf(real.get()));
}

}  // namespace divvy
