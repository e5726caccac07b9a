// The sockets on which a task accepts connections.
#ifndef DIVVY_RPC_LISTENING_SOCKETS_H_
#define DIVVY_RPC_LISTENING_SOCKETS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace divvy {

// Listens on every address that "host:port" stands for, on the same port, or on "unix:PATH". The
// destructor closes the sockets. Move-only; not thread-safe.
class ListeningSockets {
 public:
  // Port 0 means any free port. "0.0.0.0", "[::]", "*" and an empty host mean every address of this
  // machine, IPv4 and IPv6. A port on which another process listens is refused. Only this user may
  // connect to a Unix socket (unix_socket.h). Anybody who may write to the socket's directory could
  // replace it, so that directory should be writable only by this user. Blocks while a name is
  // looked up. FailedPrecondition: "cannot listen on ADDRESS: " and the cause.
  static absl::StatusOr<ListeningSockets> Open(const std::string& address);

  // 0: a Unix socket.
  int port() const { return port_; }
  // At least one until Close, then none.
  const std::vector<Descriptor>& sockets() const { return sockets_; }
  // Closes the sockets. A Unix socket is closed before its lock is released.
  void Close() {
    sockets_.clear();
    lock_.Close();
  }

 private:
  ListeningSockets() = default;
  static absl::StatusOr<ListeningSockets> OnPath(const std::string& path);

  Descriptor lock_;  // of a Unix socket; released after the socket is closed
  std::vector<Descriptor> sockets_;
  int port_ = 0;
};

// Accepts a connection of a listening socket; the connection is non-blocking and closed by exec. If
// there is none, the descriptor is empty and errno says why. Does not block.
Descriptor AcceptConnection(const Descriptor& socket);

}  // namespace divvy

#endif  // DIVVY_RPC_LISTENING_SOCKETS_H_
