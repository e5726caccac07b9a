// `divvyctl checkpoint save`, `drain`, `resize` and `rebalance`: an operator's requests to a
// coordinator.
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
  absl::Duration timeout = absl::Minutes(1);  // for the whole operation
};

// Each function blocks until the operation is done, at most for the timeout. Errors:
//   - InvalidArgument: another task serves at the address;
//   - FailedPrecondition: the coordinator cannot do this, for example without --checkpoint_dir;
//   - Unavailable: nothing answers at the address, or the program has not begun;
//   - DeadlineExceeded: the operation is not done yet, and continues;
//   - PermissionDenied: the certificate is not an admin's;
//   - ResourceExhausted, DataLoss: a disk has failed; older checkpoints are unchanged.

// Makes the coordinator save a checkpoint. Returns its name.
absl::StatusOr<std::string> SaveCheckpoint(const OperatorOptions& options);

// Drains the coordinator as SIGTERM does, and waits until its process has ended. Returns one line:
// how many steps have finished, and how many the newest checkpoint has.
absl::StatusOr<std::string> DrainCoordinator(const OperatorOptions& options);

// Changes the number of parameter servers of the job. Waits until new ones have joined and steps
// run again. Returns one line that says so.
absl::StatusOr<std::string> ResizeJob(const OperatorOptions& options, int num_ps);

// Moves shards from parameter servers that have more to do than others. Waits until steps run
// again. Returns one line that says what was done.
absl::StatusOr<std::string> RebalanceJob(const OperatorOptions& options);

// The exit code for a command that ended with this status (docs/operating/operations.md).
int OperatorExitCode(const absl::Status& status);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_OPERATE_H_
