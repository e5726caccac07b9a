// Takes connections for a gRPC server. gRPC 1.51's own listener is lost for good once the process
// is out of file descriptors (CVE-2023-4785), and takes as many connections as come.
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

// Counts connections that others close, by looking at their descriptors. One address holds at most
// half of them, or 128 where that is more: a stranger who opens all that it can, and never ends a
// handshake, leaves room for the tasks of other hosts. Not thread-safe.
class OpenConnections {
 public:
  // REQUIRES: most >= 1.
  explicit OpenConnections(int most) : most_(static_cast<size_t>(most)) {}
  enum class Admission { kAdmitted, kTooMany, kTooManyOfOneAddress };
  // Counts `fd` until it is closed, unless there are too many already. `from`: the address of the
  // other end without its port; "": of this machine's sockets.
  Admission Admit(int fd, const std::string& from, absl::Duration now);
  size_t most_of_one_address() const { return std::max<size_t>(most_ / 2, 128); }

 private:
  struct Open {
    // A descriptor's number is used again, its inode is not.
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

// A thread that hands each connection on. One that OpenConnections does not admit is closed at
// once. Where no descriptor is left, connections are closed, too, rather than left in the queue:
// their callers learn it and try again. Both are said in the log, once a minute. Thread-safe.
class Acceptor {
 public:
  // Called by the acceptor's thread; must not block.
  using Take = std::function<void(Descriptor connection)>;

  // REQUIRES: max_connections >= 1; `take` may be called until Stop has returned.
  Acceptor(ListeningSockets sockets, int max_connections, Take take);
  ~Acceptor();  // Stop()
  // Takes no connection from here on, and closes the listening sockets; blocks until a `take` under
  // way has returned. A second call does nothing.
  void Stop();

 private:
  void Run();
  void TakeOne(const Descriptor& socket);
  void ShedOne(const Descriptor& socket);

  ListeningSockets sockets_;
  const int max_connections_;
  const Take take_;
  // readable: it is time
  const Descriptor stop_;
  // Given up to take, and close, a connection where no descriptor is left.
  Descriptor reserve_;
  OpenConnections open_;
  LogLimit said_;
  ThreadPoolExecutor executor_{1};
};

}  // namespace divvy

#endif  // DIVVY_RPC_ACCEPTOR_H_
