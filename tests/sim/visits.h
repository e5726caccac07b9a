// Counts how often each position of a dataset has been read.
#ifndef DIVVY_TESTS_SIM_VISITS_H_
#define DIVVY_TESTS_SIM_VISITS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "protocol/messages.h"

namespace divvy::sim {

// The number of elements of the data at the leased positions. Pure.
inline int64_t ElementsAt(const InputLease& lease, int64_t elements) {
  return std::max<int64_t>(0, std::min(lease.count, elements - lease.first));
}

// How often each of the data's elements was read. `read` holds (first, count), which may reach past
// the end of the data. Pure.
inline std::vector<int> TimesRead(const std::vector<std::pair<int64_t, int64_t>>& read,
                                  int64_t elements) {
  std::vector<int> times(elements, 0);
  for (const auto& [first, count] : read) {
    for (int64_t p = first; p < std::min(first + count, elements); ++p) ++times[p];
  }
  return times;
}

}  // namespace divvy::sim

#endif  // DIVVY_TESTS_SIM_VISITS_H_
