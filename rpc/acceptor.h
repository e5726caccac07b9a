// Accepts connections for a gRPC server. gRPC 1.51's own listener has two faults: it stops for good
// once the process has run out of file descriptors (CVE-2023-4785), and it accepts any number of
// connections.
#ifndef DIVVY_RPC_ACCEPTOR_H_
#define DIVVY_RPC_ACCEPTOR_H_

#include <sys/types.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/executor.h"
#include "base/log_limit.h"
#include "rpc/listening_sockets.h"

namespace divvy {

// Counts open connections that other code closes, by looking at their file descriptors. One remote
// address may hold at most half of them, or 128 if that is more. So a stranger who opens as many
// connections as possible, and never completes a handshake, leaves room for the tasks of other
// hosts. Connections on Unix sockets have no such limit. Not thread-safe.
class OpenConnections {
 public:
  // `most`: how many connections may be open at a time. REQUIRES: most >= 1.
  explicit OpenConnections(int most) : most_(static_cast<size_t>(most)) {}
  enum class Admission { kAdmitted, kTooMany, kTooManyOfOneAddress };
  // Counts `fd` until it is closed, unless too many are open already. `from` is the peer's address
  // without the port; "" is a socket of this machine. `now`: from a monotonic clock.
  Admission Admit(int fd, const std::string& from, absl::Duration now);
  // The limit of connections from one address.
  size_t most_of_one_address() const { return std::max<size_t>(most_ / 2, 128); }

 private:
  struct Open {
    // Identifies the connection: the number of a descriptor is reused, its inode number is not.
    ino_t inode = 0;
    std::string from;
  };
  Admission Judge(const std::string& from) const;
  void Forget(std::map<int, Open>::iterator connection);
  void ForgetClosed();

  const size_t most_;
  std::map<int, Open> open_;
  std::map<std::string, size_t> of_address_;
  absl::Duration looked_ = -absl::InfiniteDuration();
};

// A thread that accepts connections and passes each one on. A connection that OpenConnections does
// not admit is closed at once. If the process has no descriptor left, connections are also closed
// rather than left in the queue, so that their clients notice and retry. Both cases are logged,
// once a minute. Thread-safe.
class Acceptor {
 public:
  // Called on the acceptor's thread, once for each connection. Must not block.
  using Take = std::function<void(Descriptor connection)>;

  // Starts to accept. REQUIRES: max_connections >= 1; `take` may be called until Stop has returned.
  Acceptor(ListeningSockets sockets, int max_connections, Take take);
  ~Acceptor();  // Stop()
  // Accepts no further connections and closes the listening sockets. Blocks until a running `take`
  // has returned. A second call does nothing.
  void Stop();

 private:
  void Run();
  void TakeOne(const Descriptor& socket);
  void ShedOne(const Descriptor& socket);

  ListeningSockets sockets_;
  const int max_connections_;
  const Take take_;
  // Readable once Stop was called.
  const Descriptor stop_;
  // A spare descriptor. When no other is left, it is closed so that one waiting connection can be
  // accepted and closed.
  Descriptor reserve_;
  OpenConnections open_;
  LogLimit said_;
  ThreadPoolExecutor executor_{1};
};

}  // namespace divvy

#endif  // DIVVY_RPC_ACCEPTOR_H_
