// Conversions of statuses and their typed detail.
#ifndef DIVVY_WIRE_STATUS_H_
#define DIVVY_WIRE_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/divvy.pb.h"
#include "protocol/error.h"

namespace divvy::wire {

// Pure, thread-safe. The detail (reason, the mark of a step's error ...) is preserved. The text is
// escaped and cut (text.h), by the sender and by the receiver.
v1::Status ToProto(const absl::Status& status);
// Returns the status that was sent; it may be OK. A message that is no valid status (an unknown
// code, or a detail that cannot be decoded) gives Internal.
absl::Status FromProto(const v1::Status& status);

v1::ErrorDetail ToProto(const ErrorDetail& detail);
// InvalidArgument (Reason::kInvalid): an unknown reason or role, or a negative index or duration.
absl::StatusOr<ErrorDetail> FromProto(const v1::ErrorDetail& detail);

v1::Job ToProto(Role role);
// InvalidArgument: not set, or unknown.
absl::StatusOr<Role> FromProto(v1::Job job);

// For gRPC's error_details: ToProto(status), serialized. Empty for OK, and for a status without a
// detail: gRPC carries its code and text itself.
std::string StatusDetails(const absl::Status& status);
// The inverse, for the caller: makes a status from the three parts of a call's status. `details`
// may be any bytes. If they cannot be decoded, `code` and `message` make the status (a transport
// failure). The result is OK only if `code` is 0.
absl::Status StatusOfCall(int code, absl::string_view message, absl::string_view details);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_STATUS_H_
