// The sockets on which a task takes connections.
#ifndef DIVVY_RPC_LISTENING_SOCKETS_H_
#define DIVVY_RPC_LISTENING_SOCKETS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/descriptor.h"

namespace divvy {

// Listens on every address that a "host:port" means, on one port, or on "unix:PATH". Closes them
// when it goes. Move-only; not thread-safe.
class ListeningSockets {
 public:
  // Port 0: one that is free. "0.0.0.0", "[::]", "*" and no host at all: every address of this
  // machine, of both families. A port that another process listens on is refused. Only the user may
  // connect to a Unix socket (unix_socket.h); whoever may write its directory could put another one
  // there, so the directory should be writable by the user alone. FailedPrecondition: "cannot
  // listen on ADDRESS: " and why. Blocks while a name is looked up.
  static absl::StatusOr<ListeningSockets> Open(const std::string& address);

  int port() const { return port_; }                                   // 0: of a Unix socket
  const std::vector<Descriptor>& sockets() const { return sockets_; }  // at least one, until Close
  void Close() {
    sockets_.clear();
    lock_.Close();
  }

 private:
  ListeningSockets() = default;
  static absl::StatusOr<ListeningSockets> OnPath(const std::string& path);

  Descriptor lock_;  // of a Unix socket; goes after it
  std::vector<Descriptor> sockets_;
  int port_ = 0;
};

// The next connection of a listening socket, non-blocking and closed by exec; none: errno says why.
Descriptor AcceptConnection(const Descriptor& socket);

}  // namespace divvy

#endif  // DIVVY_RPC_LISTENING_SOCKETS_H_
