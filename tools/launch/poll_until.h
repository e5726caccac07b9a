// Waiting for descriptors.
#ifndef DIVVY_TOOLS_LAUNCH_POLL_UNTIL_H_
#define DIVVY_TOOLS_LAUNCH_POLL_UNTIL_H_

#include <poll.h>

#include <vector>

#include "absl/time/time.h"

namespace divvy {

// Blocks until one of `events` is due or Clock::Real() reads `deadline` (which may be infinite, or
// past: then it only looks), and sets their revents. Returns whether any is due. Signals do not end
// it.
bool PollUntil(std::vector<pollfd>& events, absl::Duration deadline);

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_POLL_UNTIL_H_
