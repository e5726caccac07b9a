#include "rpc/transport.h"

#include <malloc.h>

#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "rpc/grpc_log.h"

namespace divvy {
namespace {

// Both are set, because setting one of them ends glibc's automatic adjustment of both.
void KeepFreedMemory() {
  mallopt(M_MMAP_THRESHOLD, 64 << 20);
  mallopt(M_TRIM_THRESHOLD, 128 << 20);
}

}  // namespace

void PrepareTransport() {
  static const bool once = [] {
    RouteGrpcLog();
    KeepFreedMemory();
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    return true;
  }();
  static_cast<void>(once);
}

// gRPC reads its environment when its first channel or server is made.
void PrepareDataServing() { setenv("GRPC_POLL_STRATEGY", "poll", /*overwrite=*/0); }

}  // namespace divvy
