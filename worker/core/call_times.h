// The times of a step's pulls and commits, as far as a trace may have them.
#ifndef DIVVY_WORKER_CORE_CALL_TIMES_H_
#define DIVVY_WORKER_CORE_CALL_TIMES_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "protocol/messages.h"

namespace divvy {

// Keeps the StepTrace::kMostCalls calls that took longest. `since` is Clock::Elapsed here, because
// a pull may begin before anybody knows of which step's trace it will be a part. Not thread-safe.
class CallTimes {
 public:
  using Call = StepTrace::Call;

  void Add(Call call) {
    if (calls_.size() < StepTrace::kMostCalls) return calls_.push_back(call);
    ++left_out_;
    const auto shortest = std::min_element(calls_.begin(), calls_.end(), IsShorter);
    if (IsShorter(*shortest, call)) *shortest = call;
  }
  // In the order in which they were sent, with `since` counted from `origin`.
  std::vector<Call> From(absl::Duration origin) const {
    std::vector<Call> calls = calls_;
    for (Call& call : calls) call.since = std::max(call.since - origin, absl::ZeroDuration());
    std::stable_sort(calls.begin(), calls.end(),
                     [](const Call& a, const Call& b) { return a.since < b.since; });
    return calls;
  }
  uint32_t left_out() const { return left_out_; }

 private:
  static bool IsShorter(const Call& a, const Call& b) { return a.took < b.took; }

  std::vector<Call> calls_;
  uint32_t left_out_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_WORKER_CORE_CALL_TIMES_H_
