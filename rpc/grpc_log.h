// Routes the logs of gRPC and protobuf into ours.
#ifndef DIVVY_RPC_GRPC_LOG_H_
#define DIVVY_RPC_GRPC_LOG_H_

#include <string>

namespace divvy {

// From now on, errors that gRPC logs appear as warnings in our log (base/log.h). They are warnings
// because everything important also returns as a status. A refused TLS connection is described in
// our own words (failure_text.h). Equal lines are logged at most once a minute. gRPC's INFO lines
// are dropped. Warnings and errors of protobuf take the same path: otherwise protobuf would print
// them on standard error, in another format, as often as a peer causes them. Thread-safe; further
// calls do nothing.
void RouteGrpcLog();

// While an object of this class lives, it collects the errors that gRPC reports on this thread, and
// they are not logged. Some functions of gRPC fail without returning a reason. REQUIRES: at most
// one object at a time in a thread, destroyed on the thread that made it. Not thread-safe.
//
//   GrpcErrors errors;
//   if (builder.BuildAndStart() == nullptr) return FailedPreconditionError(errors.text());
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
