// How long to wait before sending again: written once for all cores and clients.
#ifndef DIVVY_CLUSTER_BACKOFF_H_
#define DIVVY_CLUSTER_BACKOFF_H_

#include <algorithm>

#include "absl/time/time.h"
#include "base/random.h"

namespace divvy {

// 100 ms doubled to 10 s, each with 20 % of jitter either way (so that many waiters do not come
// back at once). Waits itself for nothing. Not thread-safe.
//
//   executor.PostAfter(backoff.Next(), [] { try again });      // after a failure
//   backoff.Reset();                                           // after an answer
class Backoff {
 public:
  // The same seed gives the same waits.
  explicit Backoff(uint64_t seed) : random_(seed) {}

  // The wait before the next try, which it counts.
  absl::Duration Next() {
    const absl::Duration delay =
        std::min(absl::Seconds(10), absl::Milliseconds(100) * (int64_t{1} << std::min(tries_, 7)));
    ++tries_;
    return delay * (0.8 + 0.4 * random_.Uniform());
  }
  void Reset() { tries_ = 0; }
  int tries() const { return tries_; }  // since the last Reset

 private:
  Random random_;
  int tries_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_CLUSTER_BACKOFF_H_
