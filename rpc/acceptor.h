// Takes connections for a gRPC server. gRPC 1.51's own listener is lost for good once the process is out of file descriptors (CVE-2023-4785), and takes as many
// connections as come.
#ifndef DIVVY_RPC_ACCEPTOR_H_
#define DIVVY_RPC_ACCEPTOR_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>

#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/executor.h"
#include "base/log_limit.h"
#include "rpc/listening_sockets.h"

namespace divvy {

// Counts connections that others close, by looking at their descriptors. Not thread-safe.
class OpenConnections {
 public:
  // REQUIRES: most >= 1.
  explicit OpenConnections(int most) : most_(static_cast<size_t>(most)) {}
  // Counts `fd` until it is closed. False: there are as many already; not counted.
  bool Admit(int fd, absl::Duration now);

 private:
  void ForgetClosed();

  const size_t most_;
  std::map<int, ino_t> open_;  // a descriptor's number is used again, its inode is not
  absl::Duration looked_ = -absl::InfiniteDuration();
};

// A thread that hands each connection on. Above `max_connections`, a connection is closed at once. Where no descriptor is left, connections are closed, too,
// rather than left in the queue: their callers learn it and try again. Both are said in the log, once a minute. Thread-safe.
class Acceptor {
 public:
  using Take = std::function<void(Descriptor connection)>;  // called by the acceptor's thread; must not block

  // REQUIRES: max_connections >= 1; `take` may be called until Stop has returned.
  Acceptor(ListeningSockets sockets, int max_connections, Take take);
  ~Acceptor();  // Stop()
  // Takes no connection from here on, and closes the listening sockets; blocks until a `take` under way has returned. A second call does nothing.
  void Stop();

 private:
  void Run();
  void TakeOne(const Descriptor& socket);
  void ShedOne(const Descriptor& socket);

  ListeningSockets sockets_;
  const int max_connections_;
  const Take take_;
  const Descriptor stop_;  // readable: it is time
  Descriptor reserve_;     // given up to take, and close, a connection where no descriptor is left
  OpenConnections open_;
  LogLimit said_;
  ThreadPoolExecutor executor_{1};
};

}  // namespace divvy

#endif  // DIVVY_RPC_ACCEPTOR_H_
