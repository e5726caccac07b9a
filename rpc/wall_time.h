// The clock of a task, which it sends with its status: operators are told of clocks that differ.
#ifndef DIVVY_RPC_WALL_TIME_H_
#define DIVVY_RPC_WALL_TIME_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "grpcpp/client_context.h"
#include "grpcpp/server_context.h"

namespace divvy {

// Trailing metadata: nanoseconds since 1970. An older build sends none.
constexpr char kWallTimeKey[] = "divvy-wall-time-ns";

// Call it in the handler of a call, before the call finishes.
inline void SendWallTime(grpc::CallbackServerContext& context) {
  context.AddTrailingMetadata(kWallTimeKey,
                              absl::StrCat(absl::ToUnixNanos(Clock::Real().WallTime())));
}

// The time that came with the answer. nullopt: none came, or it cannot be read. REQUIRES: the call
// has ended.
inline std::optional<absl::Time> WallTimeOf(const grpc::ClientContext& context) {
  const auto& metadata = context.GetServerTrailingMetadata();
  const auto found = metadata.find(kWallTimeKey);
  int64_t nanos = 0;
  if (found == metadata.end() ||
      !absl::SimpleAtoi(absl::string_view(found->second.data(), found->second.size()), &nanos))
    return std::nullopt;
  return absl::FromUnixNanos(nanos);
}

}  // namespace divvy

#endif  // DIVVY_RPC_WALL_TIME_H_
