// All time is read through this interface.
#ifndef DIVVY_BASE_CLOCK_H_
#define DIVVY_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace divvy {

// A source of time. Thread-safe; never blocks.
class Clock {
 public:
  virtual ~Clock() = default;

  // Time since an arbitrary origin, which is fixed for this process; only differences are
  // meaningful. Never goes backwards, and advances while the machine sleeps (CLOCK_BOOTTIME). All
  // timeouts use it.
  virtual absl::Duration Elapsed() const = 0;

  // Wall time. It may jump, so use it only for logs and event files.
  virtual absl::Time WallTime() const = 0;

  // The machine's clock; never destroyed.
  static Clock& Real();
};

}  // namespace divvy

#endif  // DIVVY_BASE_CLOCK_H_
