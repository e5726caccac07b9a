#include "coordinator/core/replay_order.h"

#include <algorithm>
#include <utility>

namespace divvy {

ReplayOrder::ReplayOrder(std::vector<uint64_t> numbers)
    : numbers_(std::move(numbers)), finished_(numbers_.size(), false) {
  std::sort(numbers_.begin(), numbers_.end());
}

void ReplayOrder::Finish(uint64_t number) {
  const auto found = std::lower_bound(numbers_.begin(), numbers_.end(), number);
  if (found == numbers_.end() || *found != number) return;
  finished_[static_cast<size_t>(found - numbers_.begin())] = true;
  while (first_missing_ < finished_.size() && finished_[first_missing_]) ++first_missing_;
}

}  // namespace divvy
