// A Unix socket on which one process at a time listens.
#ifndef DIVVY_RPC_UNIX_SOCKET_H_
#define DIVVY_RPC_UNIX_SOCKET_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace divvy {

// The name of the lock file is the path of the socket plus this suffix. A server holds a lock
// (flock) on that file while it listens. The file remains when the server has ended.
inline constexpr char kSocketLockSuffix[] = ".lock";

// Connections that may wait to be accepted. The kernel may allow fewer (net.core.somaxconn).
inline constexpr int kListenBacklog = 1024;

// A listening socket and its lock. Members are destroyed in reverse order, so the socket closes
// before the lock is released, and two servers never listen at the same time. Move-only.
struct UnixSocket {
  // Held exclusively. The kernel releases it when the process ends, for whatever reason.
  Descriptor lock;
  // Listening, non-blocking, and closed by exec.
  Descriptor socket;
};

// Listens at `path`. If several processes call this at the same time, exactly one succeeds. A
// socket that a dead process left behind is replaced at once. The socket and its lock file have the
// mode 0600. Nothing but a dead socket is ever removed. Thread-safe; does not wait.
//
// FailedPrecondition names the path and what to do: another process listens there; something other
// than a socket is at the path; the lock file is not a regular file; the path is too long; or the
// directory does not permit it.
absl::StatusOr<UnixSocket> ListenOnUnixSocket(const std::string& path);

}  // namespace divvy

#endif  // DIVVY_RPC_UNIX_SOCKET_H_
