// What a task tells of the times of steps (Admin.GetTraces).
#ifndef DIVVY_WIRE_TRACE_H_
#define DIVVY_WIRE_TRACE_H_

#include "absl/time/time.h"
#include "proto/divvy.pb.h"
#include "protocol/ids.h"
#include "protocol/trace_log.h"

namespace divvy::wire {

// What `log` has kept. `now` and `wall` are the same moment, by Clock::Elapsed and
// Clock::WallTime. Thread-safe.
v1::GetTracesReply ToProto(const TraceLog& log, JobId job, absl::Duration now, absl::Time wall);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_TRACE_H_
