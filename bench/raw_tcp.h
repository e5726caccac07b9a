// What a plain TCP socket moves between two processes of this machine: the ceiling of every
// transport over TCP.
#ifndef DIVVY_BENCH_RAW_TCP_H_
#define DIVVY_BENCH_RAW_TCP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace divvy::bench {

// The other end. Thread-safe.
class RawTcpServer {
 public:
  // Listens on a free port of 127.0.0.1.
  static absl::StatusOr<std::unique_ptr<RawTcpServer>> Listen();
  ~RawTcpServer();  // REQUIRES: Serve has returned

  int port() const { return port_; }
  // Serves the first connection until it ends; blocks so long. An error where none can come any
  // more.
  absl::Status Serve(int64_t largest_bytes);
  // A Serve that waits for its connection, or is called later, ends; one that has it goes on.
  void Stop();

 private:
  RawTcpServer(int listener, int port) : listener_(listener), port_(port) {}

  const int listener_, port_;
};

// Requests and answers with nothing around the bytes, in buffers that were touched before and take
// turns. A push is answered by one byte when all of it was read, a pull by the bytes asked for. Not
// thread-safe; every method blocks.
class RawTcp {
 public:
  static absl::StatusOr<std::unique_ptr<RawTcp>> Connect(int port, int64_t largest_bytes);
  ~RawTcp();

  // `count` transfers of `bytes` each, at most `outstanding` (1 to 2) of them not answered at a
  // time.
  absl::Status Push(int64_t bytes, int count, int outstanding);
  absl::Status Pull(int64_t bytes, int count, int outstanding);

 private:
  RawTcp(int socket, int64_t largest_bytes);

  const int socket_;
  std::vector<std::vector<char>> buffers_;
};

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_RAW_TCP_H_
