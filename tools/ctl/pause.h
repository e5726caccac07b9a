// A pause between two looks at a cluster.
#ifndef DIVVY_TOOLS_CTL_PAUSE_H_
#define DIVVY_TOOLS_CTL_PAUSE_H_

#include "absl/time/time.h"
#include "base/mutex.h"

namespace divvy {

// Blocks for that long. For commands that have nothing else to do; a signal ends them.
inline void Pause(absl::Duration length) {
  Mutex mu;
  CondVar never;
  MutexLock lock(mu);
  never.WaitFor(mu, length, [] { return false; });
}

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_PAUSE_H_
