// Waits for file descriptors.
#ifndef DIVVY_TOOLS_LAUNCH_POLL_UNTIL_H_
#define DIVVY_TOOLS_LAUNCH_POLL_UNTIL_H_

#include <poll.h>

#include <vector>

#include "absl/time/time.h"

namespace divvy {

// Blocks until one of `events` is due, or until Clock::Real() reads `deadline`, and sets their
// revents. With a deadline in the past it does not block; the deadline may be infinite. Returns
// whether any event is due. Signals do not end the wait.
bool PollUntil(std::vector<pollfd>& events, absl::Duration deadline);

}  // namespace divvy

#endif  // DIVVY_TOOLS_LAUNCH_POLL_UNTIL_H_
