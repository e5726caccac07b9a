#include "rpc/transport.h"

#include <malloc.h>

#include "absl/synchronization/mutex.h"
#include "grpc/grpc.h"
#include "rpc/grpc_log.h"

namespace divvy {
namespace {

// Together: setting one of them ends glibc's own adjusting of both.
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

std::vector<std::pair<std::string, int>> TransportArguments() { return {{GRPC_ARG_HTTP2_BDP_PROBE, 0}, {GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 4 << 20}}; }

}  // namespace divvy
