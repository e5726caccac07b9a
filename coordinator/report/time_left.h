// How long a pass still takes.
#ifndef DIVVY_COORDINATOR_REPORT_TIME_LEFT_H_
#define DIVVY_COORDINATOR_REPORT_TIME_LEFT_H_

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/time/time.h"

namespace divvy {

// Follows the steps of one pass. It measures from the moment at which the first step was seen to be
// done: the first steps wait for data to be opened and shuffled, and the others do not. A value
// type; pure.
class TimeLeft {
 public:
  // A pass begins, of which `done` steps were done before.
  void Begin(int64_t done) { done_at_begin_ = done, first_.reset(); }
  // At `now`, with `done` steps done and so many left. Nullopt: less than a second, or no two
  // steps, since the first one.
  std::optional<absl::Duration> At(absl::Duration now, int64_t done, int64_t left) {
    if (!first_ && done > done_at_begin_) first_.emplace(now, done);
    if (!first_ || done < first_->second + 2 || now < first_->first + absl::Seconds(1))
      return std::nullopt;
    return static_cast<double>(left) / static_cast<double>(done - first_->second) *
           (now - first_->first);
  }

 private:
  int64_t done_at_begin_ = 0;
  // When a step was seen to be done, and how many were.
  std::optional<std::pair<absl::Duration, int64_t>> first_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_REPORT_TIME_LEFT_H_
