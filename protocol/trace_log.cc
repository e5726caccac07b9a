#include "protocol/trace_log.h"

#include <algorithm>
#include <utility>

namespace divvy {

absl::Duration TraceLog::AskFor(absl::Duration now) {
  {
    MutexLock lock(mu_);
    const absl::Duration gap = now - last_sample_;
    if (gap >= most_gap_ || (++not_sampled_ >= kEach && gap >= kLeastGap)) {
      not_sampled_ = 0;
      last_sample_ = now;
      return absl::ZeroDuration();
    }
  }
  return std::max(kept_.Threshold(now), absl::Nanoseconds(1));
}

void TraceLog::Add(TracedStep run, absl::Duration asked) {
  if (!run.outcome) return kept_.AddToLast(std::move(run));
  const absl::Duration now = run.ended, took = run.total;
  if (asked == absl::ZeroDuration()) return kept_.Add(now, took, std::move(run));
  kept_.AddIfSlow(now, took, run);
}

}  // namespace divvy
