#include "coordinator/core/number_set.h"

#include <algorithm>
#include <iterator>

namespace divvy {

NumberSet::NumberSet(const PassProgress& pass) {
  int64_t after = 0;
  for (const auto& [first, count] : pass.unread) {
    if (after < first) ranges_[after] = first;
    after = std::max(after, first + count);
  }
  if (after < pass.next) ranges_[after] = pass.next;
}

void NumberSet::Save(PassProgress& pass) const {
  pass.unread.clear();
  pass.next = 0;
  for (const auto& [first, end] : ranges_) {
    if (pass.next < first) pass.unread[pass.next] = first - pass.next;
    pass.next = end;
  }
}

bool NumberSet::Contains(int64_t number) const {
  const auto after = ranges_.upper_bound(number);
  return after != ranges_.begin() && number < std::prev(after)->second;
}

void NumberSet::Add(int64_t number) {
  if (Contains(number)) return;
  auto after = ranges_.upper_bound(number);
  int64_t first = number, end = number + 1;
  if (after != ranges_.end() && after->first == end) {
    end = after->second;
    after = ranges_.erase(after);
  }
  if (after != ranges_.begin() && std::prev(after)->second == number) {
    first = std::prev(after)->first;
    ranges_.erase(std::prev(after));
  }
  ranges_[first] = end;
}

}  // namespace divvy
