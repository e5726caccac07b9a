// Seeded randomness: the same numbers from the same seed, on every machine. The one door to true
// randomness is EntropySeed().
#ifndef DIVVY_BASE_RANDOM_H_
#define DIVVY_BASE_RANDOM_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace divvy {

// A fresh 64-bit number from the operating system: for incarnations and new job ids. Thread-safe.
uint64_t EntropySeed();

// Mixes two numbers into one (SplitMix64's finaliser): derives a seed from (seed, step), (seed,
// worker) ... The order counts. Initial values, shuffles and dropout follow from it, so it is the
// same in every version.
//
//   const uint64_t seed = MixSeeds(MixSeeds(job_seed, step), replica);
uint64_t MixSeeds(uint64_t a, uint64_t b);

// A 64-bit hash of text (FNV-1a, then mixed): the same in every process and version, for categories
// in data and seeds by name. Not for untrusted keys.
uint64_t HashText(absl::string_view text);

// base/philox.h, as an array.
std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high);

// A small generator (SplitMix64; Steele et al., "Fast splittable pseudorandom number generators",
// 2014): for jitter, tests and the simulation; tables draw from Philox. Copyable value: a copy
// gives the same numbers. Not thread-safe.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next();                 // any 64 bits
  uint64_t Below(uint64_t bound);  // uniform in [0, bound); REQUIRES: bound > 0
  double Uniform();                // [0, 1), 53 bits
  // True with this probability: never at 0, always at 1.
  bool Chance(double probability) { return Uniform() < probability; }

 private:
  uint64_t state_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_RANDOM_H_
