// Time enters here and nowhere else.
#ifndef DIVVY_BASE_CLOCK_H_
#define DIVVY_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace divvy {

// Thread-safe; never blocks.
class Clock {
 public:
  virtual ~Clock() = default;

  // Time since some origin of this process: only differences mean anything. Goes on while the
  // machine sleeps (CLOCK_BOOTTIME) and never back. Every timeout is measured with it.
  virtual absl::Duration Elapsed() const = 0;

  // Wall time, for logs and event files alone: it may jump.
  virtual absl::Time WallTime() const = 0;

  // The machine's clock; never destroyed.
  static Clock& Real();
};

}  // namespace divvy

#endif  // DIVVY_BASE_CLOCK_H_
