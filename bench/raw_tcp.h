// What a plain TCP socket moves between two processes of this machine: the ceiling of every transport over TCP.
#ifndef DIVVY_BENCH_RAW_TCP_H_
#define DIVVY_BENCH_RAW_TCP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

namespace divvy::bench {

// The other end: listens on a free port of 127.0.0.1, tells it to `on_port`, and serves one connection until it ends. Blocks so long.
absl::Status ServeRawTcp(int64_t largest_bytes, void (*on_port)(int port));

// Requests and answers with nothing around the bytes, in buffers that were touched before and take turns. A push is answered by one byte when all of it was
// read, a pull by the bytes asked for. Not thread-safe; every method blocks.
class RawTcp {
 public:
  static absl::StatusOr<std::unique_ptr<RawTcp>> Connect(int port, int64_t largest_bytes);
  ~RawTcp();

  // `count` transfers of `bytes` each, at most `outstanding` (1 to 2) of them not answered at a time.
  absl::Status Push(int64_t bytes, int count, int outstanding);
  absl::Status Pull(int64_t bytes, int count, int outstanding);

 private:
  RawTcp(int socket, int64_t largest_bytes);

  const int socket_;
  std::vector<std::vector<char>> buffers_;
};

}  // namespace divvy::bench

#endif  // DIVVY_BENCH_RAW_TCP_H_
