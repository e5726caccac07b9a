// Durations as gRPC wants them.
#ifndef DIVVY_RPC_TIME_H_
#define DIVVY_RPC_TIME_H_

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace divvy {

// The moment `from_now` after this call, on the monotonic clock: nobody can set that clock. For
// ClientContext::set_deadline and Server::Shutdown. Thread-safe.
inline gpr_timespec GrpcDeadline(absl::Duration from_now) {
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_micros(absl::ToInt64Microseconds(from_now), GPR_TIMESPAN));
}

}  // namespace divvy

#endif  // DIVVY_RPC_TIME_H_
