#include "base/clock.h"

#include <time.h>

#include "absl/time/clock.h"

namespace divvy {
namespace {

class RealClock : public Clock {
 public:
  absl::Duration Elapsed() const override {
    timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    return absl::DurationFromTimespec(now);
  }
  absl::Time WallTime() const override { return absl::Now(); }
};

}  // namespace

Clock& Clock::Real() {
  static RealClock* const clock = new RealClock;
  return *clock;
}

}  // namespace divvy
