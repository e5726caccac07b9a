#include "wire/job_state.h"

#include "wire/fields.h"

namespace divvy::wire {

DIVVY_WIRE_CONVERSIONS(JobState)

std::string EncodeJobState(const JobState& state) { return ToProto(state).SerializeAsString(); }

absl::StatusOr<JobState> DecodeJobState(const std::string& bytes) {
  v1::JobState state;
  if (!state.ParseFromString(bytes)) return Invalid("", "is no JobState");
  return FromProto(state);
}

}  // namespace divvy::wire
