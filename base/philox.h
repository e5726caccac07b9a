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

// Words of different counters or keys are independent for all purposes of training. There is no
// state, so any thread may draw any part of a stream in any order. Thread-safe.
//
//   // the number of an element of a table: the same however the table is cut
//   Philox(seed, row, column / 4).word[column % 4]
DIVVY_HOST_DEVICE inline PhiloxWords Philox(uint64_t key, uint64_t counter_low,
                                            uint64_t counter_high) {
  PhiloxWords c{{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                 static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)}};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c.word[0], p1 = 0xCD9E8D57ull * c.word[2];
    c = {{static_cast<uint32_t>(p1 >> 32) ^ c.word[1] ^ k0, static_cast<uint32_t>(p1),
          static_cast<uint32_t>(p0 >> 32) ^ c.word[3] ^ k1, static_cast<uint32_t>(p0)}};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

}  // namespace divvy

#endif  // DIVVY_BASE_PHILOX_H_
