// A clock of tests that advances by a fixed step each time it is read, so that work which reads it
// before and after seems to take time.
#ifndef DIVVY_BASE_TESTING_TICKING_CLOCK_H_
#define DIVVY_BASE_TESTING_TICKING_CLOCK_H_

#include "absl/time/time.h"
#include "base/clock.h"

namespace divvy {

// For one thread.
class TickingClock : public Clock {
 public:
  explicit TickingClock(absl::Duration tick) : tick_(tick) {}
  absl::Duration Elapsed() const override { return elapsed_ += tick_; }
  // Does not advance the clock.
  absl::Time WallTime() const override { return absl::UnixEpoch() + elapsed_; }

 private:
  const absl::Duration tick_;
  mutable absl::Duration elapsed_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_TESTING_TICKING_CLOCK_H_
