// The durations of the unary calls that this process has served.
#ifndef DIVVY_RPC_CALL_DURATIONS_H_
#define DIVVY_RPC_CALL_DURATIONS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace divvy {

// Adds a call of `method` ("Worker.Attach") to grpc_server_call_duration_seconds of
// MetricsRegistry::Default(). The name and the labels are those of gRPC's own metrics (proposal
// A66). Takes a lock, so it is not for data streams. Thread-safe.
void NoteCall(absl::string_view method, absl::StatusCode code, absl::Duration took);

}  // namespace divvy

#endif  // DIVVY_RPC_CALL_DURATIONS_H_
