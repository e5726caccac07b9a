// Statuses at the door to gRPC.
#ifndef DIVVY_RPC_STATUS_H_
#define DIVVY_RPC_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"

namespace divvy {

// Pure. The typed detail (cluster/error.h) travels in grpc-status-details-bin, as
// google.rpc.Status, and comes out as it went in.
grpc::Status ToGrpc(const absl::Status& status);

// The end of a call to the task at `address`. A failure of the way (Unavailable, DeadlineExceeded)
// carries no detail; its text names the address and what failed there: no such name, connection
// refused, a certificate that was not accepted. A call that a server cancels as it shuts down is
// Unavailable, too: the caller tries again, and finds the next life there.
absl::Status FromGrpc(const grpc::Status& status, absl::string_view address);

}  // namespace divvy

#endif  // DIVVY_RPC_STATUS_H_
