// Which numbers of a series of steps have finished.
#ifndef DIVVY_COORDINATOR_CORE_NUMBER_SET_H_
#define DIVVY_COORDINATOR_CORE_NUMBER_SET_H_

#include <cstdint>
#include <map>

#include "cluster/horizon.h"

namespace divvy {

// A set of numbers from 0 on, held as intervals: small where most of them come in rising order.
// Pure; not thread-safe.
class NumberSet {
 public:
  NumberSet() = default;
  // Those that `pass` tells as read.
  explicit NumberSet(const PassProgress& pass);
  // Writes them as the positions of a pass that have been read.
  void Save(PassProgress& pass) const;

  // REQUIRES: number >= 0.
  void Add(int64_t number);
  bool Contains(int64_t number) const;

 private:
  // first -> one after the last; no two of them touch
  std::map<int64_t, int64_t> ranges_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_NUMBER_SET_H_
