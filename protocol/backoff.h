// How long to wait before a retry. All cores and clients use this one backoff.
#ifndef DIVVY_PROTOCOL_BACKOFF_H_
#define DIVVY_PROTOCOL_BACKOFF_H_

#include <algorithm>

#include "absl/time/time.h"
#include "base/random.h"

namespace divvy {

// Exponential backoff: 100 ms, doubled at each try up to 10 s. Each delay gets up to 20 % of jitter
// either way, so that many waiters do not retry at the same moment; the longest delay is thus 12 s.
// Never blocks: it computes the delay, and the caller schedules the retry. Not thread-safe.
//
//   executor.PostAfter(backoff.Next(), [] { try again });      // after a failure
//   backoff.Reset();                                           // after an answer
class Backoff {
 public:
  // The same seed gives the same delays.
  explicit Backoff(uint64_t seed) : random_(seed) {}

  // Returns the delay before the next try, and counts that try.
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

#endif  // DIVVY_PROTOCOL_BACKOFF_H_
