// Durations as gRPC wants them.
#ifndef DIVVY_RPC_TIME_H_
#define DIVVY_RPC_TIME_H_

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace divvy {

// So long from now, on a clock that nobody sets.
inline gpr_timespec GrpcDeadline(absl::Duration from_now) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(absl::ToInt64Microseconds(from_now), GPR_TIMESPAN));
}

}  // namespace divvy

#endif  // DIVVY_RPC_TIME_H_
