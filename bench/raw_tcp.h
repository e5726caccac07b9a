// The throughput of a TCP socket between two processes of this machine, plain or with mutual TLS:
// the ceiling of every transport over TCP.
#ifndef DIVVY_BENCH_RAW_TCP_H_
#define DIVVY_BENCH_RAW_TCP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "rpc/credentials.h"

namespace divvy::bench {

class Wire;  // a connection

// The server's end of the socket. Thread-safe.
class RawTcpServer {
 public:
  // Listens on a free port of 127.0.0.1.
  static absl::StatusOr<std::unique_ptr<RawTcpServer>> Listen();
  ~RawTcpServer();  // REQUIRES: Serve has returned

  int port() const { return port_; }
  // Waits for a connection, and serves it until it ends. Unavailable: Stop was called before a
  // client connected, or TLS refused the client.
  absl::Status Serve(int64_t largest_bytes, const std::optional<TlsFiles>& tls = std::nullopt);
  // Ends a Serve that waits for its connection, and every later Serve. A Serve with a connection
  // continues.
  void Stop();

 private:
  RawTcpServer(int listener, int port) : listener_(listener), port_(port) {}

  const int listener_, port_;
};

// The client's end. Requests and replies have no framing besides the sizes. The buffers were
// touched before and are used in turn. The reply to a push is one byte, after all of the push was
// read; the reply to a pull is the requested bytes. Not thread-safe; every method blocks.
class RawTcp {
 public:
  static absl::StatusOr<std::unique_ptr<RawTcp>> Connect(
      int port, int64_t largest_bytes, const std::optional<TlsFiles>& tls = std::nullopt);
  ~RawTcp();

  // Make `count` transfers of `bytes` each, with at most `outstanding` (1 or 2) in flight.
  absl::Status Push(int64_t bytes, int count, int outstanding);
  absl::Status Pull(int64_t bytes, int count, int outstanding);

 private:
  RawTcp(std::unique_ptr<Wire> wire, int64_t largest_bytes);

  const std::unique_ptr<Wire> wire_;
  std::vector<std::vector<char>> buffers_;
};

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_RAW_TCP_H_
