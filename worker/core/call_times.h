// The times of a step's pulls and commits, as far as a trace may have them.
#ifndef DIVVY_WORKER_CORE_CALL_TIMES_H_
#define DIVVY_WORKER_CORE_CALL_TIMES_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "protocol/messages.h"

namespace divvy {

// Keeps StepTrace::kMostCalls calls: of each kind, pulls and commits, those that took longest. Half
// of the places are for either kind if there are so many of it. `since` is Clock::Elapsed here,
// because a pull may begin before anybody knows of which step's trace it will be a part. Not
// thread-safe.
class CallTimes {
 public:
  using Call = StepTrace::Call;

  void Add(const Call& call) {
    ++kept_[call.commit];
    calls_.push_back(call);
    if (calls_.size() <= StepTrace::kMostCalls) return;
    ++left_out_;
    const bool kind = kept_[call.commit] > StepTrace::kMostCalls / 2 ? call.commit : !call.commit;
    --kept_[kind];
    // The shortest of its kind.
    calls_.erase(
        std::min_element(calls_.begin(), calls_.end(), [kind](const Call& a, const Call& b) {
          return a.commit != b.commit ? a.commit == kind : a.took < b.took;
        }));
  }
  // In the order in which they were sent, with `since` counted from `origin`. Of a call that was
  // sent before, the part behind `origin`.
  std::vector<Call> From(absl::Duration origin) const {
    std::vector<Call> calls = calls_;
    for (Call& call : calls) {
      const absl::Duration early = std::max(origin - call.since, absl::ZeroDuration());
      call.since += early - origin;
      call.took = std::max(call.took - early, absl::ZeroDuration());
      call.served = std::min(call.served, call.took);
    }
    std::stable_sort(calls.begin(), calls.end(),
                     [](const Call& a, const Call& b) { return a.since < b.since; });
    return calls;
  }
  uint32_t left_out() const { return left_out_; }

 private:
  std::vector<Call> calls_;
  // Of pulls and of commits, in calls_.
  std::array<size_t, 2> kept_ = {};
  uint32_t left_out_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_CALL_TIMES_H_
