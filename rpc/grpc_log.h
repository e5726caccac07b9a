// gRPC's own log, in ours.
#ifndef DIVVY_RPC_GRPC_LOG_H_
#define DIVVY_RPC_GRPC_LOG_H_

#include <string>
#include <vector>

#include "absl/types/span.h"

namespace divvy {

// From now on what gRPC calls an error goes through base/log.h, as a warning of ours: what matters of it comes back to us as a status. Its INFO is left out.
// Thread-safe; more than once is fine.
void RouteGrpcLog();

// While one lives, the errors that gRPC reports on this thread are kept here instead of logged: some of its functions fail without saying why. One at a time in a
// thread; not thread-safe.
class GrpcErrors {
 public:
  GrpcErrors();
  ~GrpcErrors();
  GrpcErrors(const GrpcErrors&) = delete;
  std::vector<std::string> Take();

 private:
  std::vector<std::string> errors_;
};

// Why a server could not listen, from what gRPC said meanwhile: the operating system's words, and what to do. Pure.
std::string ListenFailure(absl::Span<const std::string> errors);

}  // namespace divvy

#endif  // DIVVY_RPC_GRPC_LOG_H_
