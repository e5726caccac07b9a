// Statuses at the door to gRPC.
#ifndef DIVVY_RPC_STATUS_H_
#define DIVVY_RPC_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "grpcpp/support/status.h"
#include "wire/status.h"

namespace divvy {

// The typed detail travels in grpc-status-details-bin, as google.rpc.Status. Failures of the way carry none.
inline grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()), wire::StatusDetails(status));
}
inline absl::Status FromGrpc(const grpc::Status& status) {
  return wire::StatusOfCall(static_cast<int>(status.error_code()), status.error_message(), status.error_details());
}

}  // namespace divvy

#endif  // DIVVY_RPC_STATUS_H_
