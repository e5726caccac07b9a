// The coordinator's part of a checkpoint (JobState), as bytes. Decoding accepts any bytes: it
// returns a JobState, or an InvalidArgument that names the field.
#ifndef DIVVY_WIRE_JOB_STATE_H_
#define DIVVY_WIRE_JOB_STATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "proto/divvy.pb.h"
#include "protocol/job_state.h"

namespace divvy::wire {

// All are pure and thread-safe.

// REQUIRES: the state has a layout.
v1::JobState ToProto(const JobState& state);
absl::StatusOr<JobState> FromProto(const v1::JobState& state);

// The serialized message, as checkpoints hold it (docs/formats/checkpoint.md). DecodeJobState
// returns InvalidArgument also for bytes that are not a message.
std::string EncodeJobState(const JobState& state);
absl::StatusOr<JobState> DecodeJobState(const std::string& bytes);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_JOB_STATE_H_
