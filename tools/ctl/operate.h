// `divvyctl checkpoint save` and `divvyctl drain`: what an operator asks of a coordinator.
#ifndef DIVVY_TOOLS_CTL_OPERATE_H_
#define DIVVY_TOOLS_CTL_OPERATE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"

namespace divvy {

struct OperatorOptions {
  std::string address;  // of the coordinator, "host:port"
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  absl::Duration timeout = absl::Minutes(1);  // for the whole
};

// All block until it is done, at most for the timeout. InvalidArgument: the address is that of
// another task. FailedPrecondition: the coordinator has no directory for checkpoints. Unavailable:
// nobody answers there, or the program has not begun. DeadlineExceeded: what was asked for goes on
// without us. PermissionDenied: not the admin's certificate. ResourceExhausted, DataLoss: a disk;
// older checkpoints stand.

// Has a checkpoint made; returns its name.
absl::StatusOr<std::string> SaveCheckpoint(const OperatorOptions& options);

// Has the coordinator drained as by SIGTERM, and waits until it has gone. Returns in a line what
// was finished and what is saved.
absl::StatusOr<std::string> DrainCoordinator(const OperatorOptions& options);

// Has the job go on with so many parameter servers; waits for those that are to join, and until
// steps run again. Returns that in a line.
absl::StatusOr<std::string> ResizeJob(const OperatorOptions& options, int num_ps);

// Of the process of a command that ended so (docs/operating/operations.md).
int OperatorExitCode(const absl::Status& status);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_OPERATE_H_
