// Statuses and their typed detail.
#ifndef DIVVY_WIRE_STATUS_H_
#define DIVVY_WIRE_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/divvy.pb.h"
#include "protocol/error.h"

namespace divvy::wire {

// Pure, thread-safe. The detail (reason, the user's mark ...) survives; the text is
// escaped and cut (text.h) on both ways.
v1::Status ToProto(const absl::Status& status);
// The status that was sent, OK among them. Internal, never OK, for what cannot be one: an unknown
// code, or a detail that makes no sense.
absl::Status FromProto(const v1::Status& status);

v1::ErrorDetail ToProto(const ErrorDetail& detail);
// InvalidArgument (Reason::kInvalid): an unknown reason or role, or a negative index or duration.
absl::StatusOr<ErrorDetail> FromProto(const v1::ErrorDetail& detail);

v1::Job ToProto(Role role);
// InvalidArgument: not set, or unknown.
absl::StatusOr<Role> FromProto(v1::Job job);

// For gRPC's error_details: ToProto(status), serialized. Empty for OK and for a status without
// detail, whose code and text gRPC carries itself.
std::string StatusDetails(const absl::Status& status);
// The inverse, at the caller: from the three parts of a call's status. `details` may be any bytes;
// where they say nothing, `code` and `message` count (a failure of the way). Never OK unless `code`
// is 0.
absl::Status StatusOfCall(int code, absl::string_view message, absl::string_view details);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_STATUS_H_
