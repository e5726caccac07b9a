// Which number the nth session of an epoch has.
#ifndef DIVVY_COORDINATOR_CORE_SESSION_NUMBERS_H_
#define DIVVY_COORDINATOR_CORE_SESSION_NUMBERS_H_

#include <cstdint>

#include "cluster/ids.h"

namespace divvy {

// Numbers come in blocks of 65,536, and the first block of an epoch is the epoch's own. Its next
// blocks are those of epochs far away, 32,768 from it at first: two coordinators of one job that
// live at the same time are of epochs near to each other. Those less than 1,024 apart share no
// number before one of them has given 4 million. Pure.
// The coordinator's own number, 0, is among them: who gives numbers to workers skips it.
constexpr SessionId SessionOf(Epoch epoch, uint32_t nth) {
  uint32_t away = 0;  // the bits of the block, the last one first
  for (uint32_t bit = 0; bit < 16; ++bit) away |= ((nth >> (16 + bit)) & 1) << (15 - bit);
  const auto block = static_cast<uint32_t>(epoch.value()) + away;
  return SessionId((block << 16) | (nth & 0xFFFF));
}

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_SESSION_NUMBERS_H_
