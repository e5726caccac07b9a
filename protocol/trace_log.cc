#include "protocol/trace_log.h"

#include <algorithm>
#include <utility>

namespace divvy {

absl::Duration TraceLog::AskFor(absl::Duration now) {
  {
    MutexLock lock(mu_);
    const absl::Duration gap = now - last_sample_;
    if (gap >= kMostGap || (++not_sampled_ >= kEach && gap >= kLeastGap)) {
      not_sampled_ = 0;
      last_sample_ = now;
      return absl::ZeroDuration();
    }
  }
  return std::max(kept_.Threshold(now), absl::Nanoseconds(1));
}

void TraceLog::Add(TracedStep run, absl::Duration took, absl::Duration asked) {
  using Keep = RecentAndSlowest<TracedStep>::Keep;
  const bool anyway = asked == absl::ZeroDuration() || !run.outcome;
  const absl::Duration now = run.ended;
  kept_.Add(now, took, std::move(run), anyway ? Keep::kAnyway : Keep::kIfSlow);
}

}  // namespace divvy
