#include "tools/launch/poll_until.h"

#include <errno.h>

#include <algorithm>

#include "base/clock.h"

namespace divvy {

bool PollUntil(std::vector<pollfd>& events, absl::Duration deadline) {
  int due;
  do {
    const absl::Duration left = std::max(absl::ZeroDuration(), deadline - Clock::Real().Elapsed());
    const timespec timeout = absl::ToTimespec(left);
    due = ppoll(events.data(), events.size(), left == absl::InfiniteDuration() ? nullptr : &timeout,
                nullptr);
  } while (due < 0 && errno == EINTR);
  return due > 0;
}

}  // namespace divvy
