// Converts statuses between Abseil and gRPC.
#ifndef DIVVY_RPC_STATUS_H_
#define DIVVY_RPC_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "grpcpp/support/status.h"

namespace divvy {

// Pure. The typed detail (protocol/error.h) travels in grpc-status-details-bin, as
// google.rpc.Status, and FromGrpc restores it unchanged. Long messages are cut, because a peer
// refuses headers that are too long.
grpc::Status ToGrpc(const absl::Status& status);

// The result of a call to the task at `address`, for its caller. Pure.
// - A status with an ErrorDetail comes from the server, and keeps its code, text and detail.
// - A status without an ErrorDetail is a transport failure (Unavailable, DeadlineExceeded). Its
//   text names the address and the cause: no such name, connection refused, or a certificate that
//   was not accepted. The caller may retry the call.
// - A call that a server cancels as it shuts down is also Unavailable: a caller that retries
//   reaches the process that is started next at that address.
// - A message larger than gRPC's limit is Internal: no message of Divvy is that large, so something
//   else runs at the address.
absl::Status FromGrpc(const grpc::Status& status, absl::string_view address);

}  // namespace divvy

#endif  // DIVVY_RPC_STATUS_H_
