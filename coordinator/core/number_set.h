// The numbers of a series of steps that have finished.
#ifndef DIVVY_COORDINATOR_CORE_NUMBER_SET_H_
#define DIVVY_COORDINATOR_CORE_NUMBER_SET_H_

#include <cstdint>
#include <map>

#include "protocol/horizon.h"

namespace divvy {

// A set of numbers of 0 or more, stored as intervals. It is small if most numbers are added in
// rising order. Pure; not thread-safe.
class NumberSet {
 public:
  NumberSet() = default;
  // Has the numbers that are read positions of `pass`.
  explicit NumberSet(const PassProgress& pass);
  // Writes the numbers to `pass` as its read positions.
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
