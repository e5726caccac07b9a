// gRPC's own log, and protobuf's, in ours.
#ifndef DIVVY_RPC_GRPC_LOG_H_
#define DIVVY_RPC_GRPC_LOG_H_

#include <string>

namespace divvy {

// From now on what gRPC calls an error goes through base/log.h, as a warning of ours: what matters
// of it comes back to us as a status. A refused TLS connection is told in our words
// (failure_text.h); the same line comes once a minute at most. gRPC's INFO is left out. What
// protobuf warns of goes the same way: it would stand on standard error, in another format, as
// often as a peer likes. Thread-safe; more than once is fine.
void RouteGrpcLog();

// While one lives, the errors that gRPC reports on this thread are kept here instead of logged:
// some of its functions fail without saying why. One at a time in a thread; not thread-safe.
class GrpcErrors {
 public:
  GrpcErrors();
  ~GrpcErrors();
  GrpcErrors(const GrpcErrors&) = delete;
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

}  // namespace divvy

#endif  // DIVVY_RPC_GRPC_LOG_H_
