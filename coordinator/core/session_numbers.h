// Computes the number of the nth session of an epoch.
#ifndef DIVVY_COORDINATOR_CORE_SESSION_NUMBERS_H_
#define DIVVY_COORDINATOR_CORE_SESSION_NUMBERS_H_

#include <cstdint>

#include "protocol/ids.h"

namespace divvy {

// Session numbers come in blocks of 65,536. The first block of an epoch is the epoch's own. Its
// next blocks belong to epochs far away, at first 32,768 epochs away. Two coordinators of one job
// that live at the same time have epochs close to each other. If their epochs are less than 1,024
// apart, they share no number before one of them has given 4 million.
//
// The coordinator's own number, 0, is among the results: a caller that numbers workers must skip
// it. Pure.
constexpr SessionId SessionOf(Epoch epoch, uint32_t nth) {
  uint32_t away = 0;  // the bits of the block, the last one first
  for (uint32_t bit = 0; bit < 16; ++bit) away |= ((nth >> (16 + bit)) & 1) << (15 - bit);
  const auto block = static_cast<uint32_t>(epoch.value()) + away;
  return SessionId((block << 16) | (nth & 0xFFFF));
}

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_SESSION_NUMBERS_H_
