// Tells probes without certificates (of a kubelet or a load balancer) whether a task serves.
#ifndef DIVVY_RPC_PROBE_SERVER_H_
#define DIVVY_RPC_PROBE_SERVER_H_

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/descriptor.h"
#include "base/executor.h"
#include "rpc/listening_sockets.h"

namespace divvy {

// The answer to a probe that has sent `request` so far. nullopt: the request is not complete yet.
// Pure.
std::optional<std::string> AnswerToProbe(absl::string_view request, bool serving);

// A small HTTP/1.1 server. GET or HEAD of any path returns 200 "serving" or 503 "not serving";
// another method returns 405. Then the connection is closed. The server gives no other information,
// so it may be open to everybody. A flood of connections costs the time of one thread and 64
// connections of 4 KiB each, never the task's memory. A probe that sends its request at once is
// answered even then. Uses one thread. Thread-safe.
class ProbeServer {
 public:
  // "host:port"; ":port" means 127.0.0.1. Errors as ListeningSockets::Open.
  static absl::StatusOr<std::unique_ptr<ProbeServer>> Start(const std::string& address);
  // Closes all connections and blocks until the thread has ended.
  ~ProbeServer();

  int port() const { return sockets_.port(); }
  // Sets the answer. A new server is not serving.
  void SetServing(bool serving) { serving_ = serving; }

 private:
  struct Caller {
    Descriptor connection;
    absl::Duration until;  // the time by which the request must be complete
    std::string request;
  };
  explicit ProbeServer(ListeningSockets sockets);
  void Run();
  void TakeOne(const Descriptor& socket);
  bool Serve(Caller& caller) const;  // false: the connection is over

  const ListeningSockets sockets_;
  const Descriptor stop_;  // readable once the thread must end
  std::atomic<bool> serving_{false};
  std::deque<Caller> callers_;  // oldest first; used only by the thread
  ThreadPoolExecutor executor_{1};
};

}  // namespace divvy

#endif  // DIVVY_RPC_PROBE_SERVER_H_
