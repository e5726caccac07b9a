// Whether a task serves, for probes that have no certificate (a kubelet's, a load balancer's).
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

// What a probe that has sent `request` so far is answered; none: its request is not whole yet.
// Pure.
std::optional<std::string> AnswerToProbe(absl::string_view request, bool serving);

// Answers HTTP/1.1: GET or HEAD of any path is 200 "serving" or 503 "not serving", another method
// 405; then it closes. It has nothing else to give, so it may be open to everybody: whoever floods
// it takes a thread's time and 64 connections of 4 KiB, never the task's memory; a probe that sends
// its request at once is answered all the same. One thread. Thread-safe.
class ProbeServer {
 public:
  // "host:port"; without a host: 127.0.0.1. Errors as ListeningSockets::Open.
  static absl::StatusOr<std::unique_ptr<ProbeServer>> Start(const std::string& address);
  // Closes everything; blocks until the thread has ended.
  ~ProbeServer();

  int port() const { return sockets_.port(); }
  void SetServing(bool serving) { serving_ = serving; }  // at first it is not

 private:
  struct Caller {
    Descriptor connection;
    absl::Duration until;  // its request must be there
    std::string request;
  };
  explicit ProbeServer(ListeningSockets sockets);
  void Run();
  void TakeOne(const Descriptor& socket);
  bool Serve(Caller& caller) const;  // false: the connection is over

  const ListeningSockets sockets_;
  const Descriptor stop_;  // readable: it is time
  std::atomic<bool> serving_{false};
  std::deque<Caller> callers_;  // the oldest first; the thread's own
  ThreadPoolExecutor executor_{1};
};

}  // namespace divvy

#endif  // DIVVY_RPC_PROBE_SERVER_H_
