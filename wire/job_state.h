// What a checkpoint says of its job, as bytes. Total: whatever is read gives a JobState or an
// InvalidArgument that names the field.
#ifndef DIVVY_WIRE_JOB_STATE_H_
#define DIVVY_WIRE_JOB_STATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/divvy.pb.h"
#include "protocol/job_state.h"

namespace divvy::wire {

// All are pure and thread-safe.

// REQUIRES: a layout.
v1::JobState ToProto(const JobState& state);
absl::StatusOr<JobState> FromProto(const v1::JobState& state);

// The same as bytes: what stands in a checkpoint (docs/formats/checkpoint.md). Any bytes may be
// given: InvalidArgument, too, for such as are no message.
std::string EncodeJobState(const JobState& state);
absl::StatusOr<JobState> DecodeJobState(const std::string& bytes);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_JOB_STATE_H_
