// The numbers of a series of steps that have finished.
#ifndef DIVVY_COORDINATOR_CORE_NUMBER_SET_H_
#define DIVVY_COORDINATOR_CORE_NUMBER_SET_H_

#include <cstdint>
#include <map>

#include "protocol/horizon.h"

namespace divvy {

// A set of numbers from 0 on, stored as intervals. It is small if most numbers arrive in rising
// order. Pure; not thread-safe.
class NumberSet {
 public:
  NumberSet() = default;
  // The numbers that `pass` has as read positions.
  explicit NumberSet(const PassProgress& pass);
  // Writes the numbers as the read positions of a pass.
  void Save(PassProgress& pass) const;

  // REQUIRES: number >= 0.
  void Add(int64_t number);
  bool Contains(int64_t number) const;

 private:
  // First number -> the number after the last. No two ranges touch.
  std::map<int64_t, int64_t> ranges_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_NUMBER_SET_H_
