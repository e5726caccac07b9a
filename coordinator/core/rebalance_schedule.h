// When a job moves its shards by itself (--rebalance=auto).
#ifndef DIVVY_COORDINATOR_CORE_REBALANCE_SCHEDULE_H_
#define DIVVY_COORDINATOR_CORE_REBALANCE_SCHEDULE_H_

#include "absl/time/time.h"

namespace divvy {

// A rebalance costs a pause, so it waits until the load has been uneven for a minute, and then for
// ten minutes. Not thread-safe.
class RebalanceSchedule {
 public:
  // Whether to look at the load now. True at most every ten seconds.
  bool WantsLook(absl::Duration now) {
    if (now < next_look_) return false;
    next_look_ = now + kBetweenLooks;
    return true;
  }
  // Tells the load of the busiest server, as a multiple of the mean, as it is now. True: it is time
  // to move shards, and the caller tries to.
  bool Note(double imbalance, absl::Duration now) {
    if (imbalance < kUneven || now < rest_until_) {
      uneven_looks_ = 0;
      return false;
    }
    if (++uneven_looks_ < kLooks) return false;
    uneven_looks_ = 0;
    rest_until_ = now + kRest;
    return true;
  }

  // Less is not worth a pause.
  static constexpr double kUneven = 1.5;

 private:
  static constexpr absl::Duration kBetweenLooks = absl::Seconds(10), kRest = absl::Minutes(10);
  static constexpr int kLooks = 6;

  absl::Duration next_look_ = -absl::InfiniteDuration(), rest_until_ = -absl::InfiniteDuration();
  int uneven_looks_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_REBALANCE_SCHEDULE_H_
