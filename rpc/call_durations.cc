#include "rpc/call_durations.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/metrics.h"

namespace divvy {

void NoteCall(absl::string_view method, absl::StatusCode code, absl::Duration took) {
  const std::string path = absl::StrCat("divvy.v1.", absl::StrReplaceAll(method, {{".", "/"}}));
  MetricsRegistry::Default()
      .GetHistogram("grpc_server_call_duration_seconds",
                    "How long unary calls took that this process has served.",
                    {{"grpc_method", path}, {"grpc_status", absl::StatusCodeToString(code)}})
      .Observe(absl::ToDoubleSeconds(took));
}

}  // namespace divvy
