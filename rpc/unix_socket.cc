// Algorithm:
//  1. Lock PATH.lock. The process that holds the lock owns the path, so steps 2 to 4 have no race
//     with another server.
//  2. Bind. If nothing is at the path, go to step 4.
//  3. Connect to the socket at the path: a process of an older version, which does not use the
//     lock, may listen there. If none does, remove the socket and bind again.
//  4. Listen. Keep the lock.
#include "rpc/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "cluster/task_address.h"
#include "rpc/closed_in_forks.h"

namespace divvy {
namespace {

constexpr char kAnotherListens[] = "another process listens there: stop it, or choose another path";

absl::Status Refused(const std::string& path, absl::string_view why) {
  return absl::FailedPreconditionError(
      absl::StrCat("cannot listen on the Unix socket ", path, ": ", why));
}

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() > kMaxSocketPath)
    return Refused(path, absl::StrCat("its path has more than ", kMaxSocketPath,
                                      " bytes: choose a shorter one"));
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<Descriptor> LockPath(const std::string& path) {
  const std::string name = path + kSocketLockSuffix;
  const absl::Status odd =
      Refused(path, absl::StrCat("its lock ", name, " is no plain file: remove it"));
  // O_NONBLOCK, because the lock file may be a pipe or a device.
  Descriptor lock(open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!lock && (errno == ELOOP || errno == EISDIR || errno == ENXIO)) return odd;
  if (!lock) return Refused(path, strerror(errno));
  struct stat info;
  if (fstat(lock.get(), &info) != 0 || !S_ISREG(info.st_mode)) return odd;
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return ClosedInForks(std::move(lock));
  return Refused(path, errno == EWOULDBLOCK ? kAnotherListens : strerror(errno));
}

Descriptor NewSocket() {
  return ClosedInForks(Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)));
}

// REQUIRES: something exists at the path.
absl::Status RemoveDeadSocket(const std::string& path, const sockaddr_un& address) {
  struct stat info;
  if (lstat(path.c_str(), &info) != 0) return Refused(path, strerror(errno));
  if (!S_ISSOCK(info.st_mode)) {
    const char* const kind = S_ISLNK(info.st_mode)   ? "a symbolic link"
                             : S_ISDIR(info.st_mode) ? "a directory"
                                                     : "a file";
    return Refused(path, absl::StrCat(kind, " stands there: remove it, or choose another path"));
  }
  const Descriptor caller = NewSocket();
  if (!caller) return Refused(path, strerror(errno));
  if (connect(caller.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno != ECONNREFUSED)
    return Refused(path, kAnotherListens);
  return unlink(path.c_str()) == 0 ? absl::OkStatus() : Refused(path, strerror(errno));
}

}  // namespace

absl::StatusOr<UnixSocket> ListenOnUnixSocket(const std::string& path) {
  UnixSocket made;
  ASSIGN_OR_RETURN(const sockaddr_un address, AddressOf(path));
  ASSIGN_OR_RETURN(made.lock, LockPath(path));
  made.socket = NewSocket();
  // On Linux the file of the socket gets the mode of the unbound socket. So there is no moment at
  // which other users may connect.
  if (!made.socket || fchmod(made.socket.get(), 0600) != 0) return Refused(path, strerror(errno));
  const auto bound = [&] {
    return bind(made.socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) ==
           0;
  };
  if (!bound()) {
    if (errno != EADDRINUSE) return Refused(path, strerror(errno));
    RETURN_IF_ERROR(RemoveDeadSocket(path, address));
    if (!bound()) return Refused(path, strerror(errno));
  }
  if (listen(made.socket.get(), kListenBacklog) != 0) return Refused(path, strerror(errno));
  return made;
}

}  // namespace divvy
