// A Unix socket on which one process at a time listens.
#ifndef DIVVY_RPC_UNIX_SOCKET_H_
#define DIVVY_RPC_UNIX_SOCKET_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace divvy {

// A server at PATH holds a lock (flock) on the file PATH + this for as long as it listens. The file
// stays when the server is gone.
inline constexpr char kSocketLockSuffix[] = ".lock";

// connections that wait to be taken; the kernel may allow fewer (net.core.somaxconn)
inline constexpr int kListenBacklog = 1024;

// Closing the socket before the lock leaves no moment at which two servers listen.
struct UnixSocket {
  // The kernel lets go of it when the process ends, however it ends.
  Descriptor lock;
  // listens, does not block, is closed by exec
  Descriptor socket;
};

// Listens at `path`. Of processes that call this at the same moment, exactly one succeeds. A socket
// that a dead process left is replaced at once. The socket and its lock have the mode 0600.
// FailedPrecondition, naming the path and what to do: another process listens there; what stands
// there is no socket; the lock is no plain file; the path is too long; the directory does not let
// us. Nothing is removed but a dead socket. Thread-safe. Does not wait.
absl::StatusOr<UnixSocket> ListenOnUnixSocket(const std::string& path);

}  // namespace divvy

#endif  // DIVVY_RPC_UNIX_SOCKET_H_
