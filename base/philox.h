// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): four 32-bit
// words as a pure function of key and counter, the same on every kind of device.
#ifndef DIVVY_BASE_PHILOX_H_
#define DIVVY_BASE_PHILOX_H_

#include <cstdint>

#include "base/host_device.h"

namespace divvy {

struct PhiloxWords {
  uint32_t word[4];
};

// The parts of Philox, for code that draws many at once.
constexpr int kPhiloxRounds = 10;
struct PhiloxKey {  // of the first round
  DIVVY_HOST_DEVICE explicit PhiloxKey(uint64_t key)
      : low(static_cast<uint32_t>(key)), high(static_cast<uint32_t>(key >> 32)) {}
  // Becomes that of the next round.
  DIVVY_HOST_DEVICE void Next() {
    low += 0x9E3779B9u;
    high += 0xBB67AE85u;
  }
  uint32_t low, high;
};
DIVVY_HOST_DEVICE inline void PhiloxRound(uint32_t key_low, uint32_t key_high, uint32_t& c0,
                                          uint32_t& c1, uint32_t& c2, uint32_t& c3) {
  const uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
  c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key_low;
  c1 = static_cast<uint32_t>(p1);
  c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key_high;
  c3 = static_cast<uint32_t>(p0);
}

// Words of different counters or keys are independent for all purposes of training. There is no
// state, so any thread may draw any part of a stream in any order. Thread-safe.
//
//   // the number of an element of a table: the same however the table is cut
//   Philox(seed, row, column / 4).word[column % 4]
DIVVY_HOST_DEVICE inline PhiloxWords Philox(uint64_t key, uint64_t counter_low,
                                            uint64_t counter_high) {
  PhiloxWords c{{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                 static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)}};
  PhiloxKey keys(key);
  for (int round = 0; round < kPhiloxRounds; ++round, keys.Next())
    PhiloxRound(keys.low, keys.high, c.word[0], c.word[1], c.word[2], c.word[3]);
  return c;
}

}  // namespace divvy

#endif  // DIVVY_BASE_PHILOX_H_
