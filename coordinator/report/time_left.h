// Estimates the time until a pass ends.
#ifndef DIVVY_COORDINATOR_REPORT_TIME_LEFT_H_
#define DIVVY_COORDINATOR_REPORT_TIME_LEFT_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace divvy {

// Follows the steps of one pass. The measurement begins when the first finished step is seen,
// because only the first steps wait for the data to be opened and shuffled. A value type; no method
// reads a clock. Not thread-safe.
class TimeLeft {
 public:
  // A pass begins. `done`: how many of its steps were finished before.
  void Begin(int64_t done) { done_at_begin_ = done, first_.reset(); }
  // The estimate at time `now`, with `done` steps finished and `left` to go. Nullopt: since the
  // first finished step was seen, less than a second has passed or fewer than two more steps have
  // finished.
  std::optional<absl::Duration> At(absl::Duration now, int64_t done, int64_t left) {
    if (!first_ && done > done_at_begin_) first_.emplace(now, done);
    if (!first_ || done < first_->second + 2 || now < first_->first + absl::Seconds(1))
      return std::nullopt;
    return static_cast<double>(left) / static_cast<double>(done - first_->second) *
           (now - first_->first);
  }

 private:
  int64_t done_at_begin_ = 0;
  // When the first finished step was seen, and how many were finished then.
  std::optional<std::pair<absl::Duration, int64_t>> first_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_REPORT_TIME_LEFT_H_
