// Seeded randomness: a seed gives the same numbers on every machine. EntropySeed() is the only
// source of true randomness.
#ifndef DIVVY_BASE_RANDOM_H_
#define DIVVY_BASE_RANDOM_H_

#include <array>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace divvy {

// A new random 64-bit number from the operating system, for incarnations and new job ids.
// Thread-safe.
uint64_t EntropySeed();

// Mixes two numbers into one (SplitMix64's finaliser). Use it to derive a seed from (seed, step),
// (seed, worker) and so on. The order of the arguments matters. Initial values, shuffles and
// dropout depend on the result, so it never changes between versions. Pure.
//
//   const uint64_t seed = MixSeeds(MixSeeds(job_seed, step), replica);
uint64_t MixSeeds(uint64_t a, uint64_t b);

// A 64-bit hash of text (FNV-1a, then mixed), for categories in data and for seeds by name. It is
// the same in every process and version. Not for untrusted keys: collisions are easy to construct.
// Pure.
uint64_t HashText(absl::string_view text);

// Philox of base/philox.h, with the words as an array. Pure.
std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high);

// A small generator (SplitMix64; Steele et al., "Fast splittable pseudorandom number generators",
// 2014) for jitter, tests and the simulation. Tables use Philox instead. A copyable value: a copy
// gives the same numbers. Not thread-safe.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  // Any 64 bits.
  uint64_t Next();
  // Uniform in [0, bound). REQUIRES: bound > 0.
  uint64_t Below(uint64_t bound);
  // Uniform in [0, 1), with 53 bits.
  double Uniform();
  // True with this probability. Never true at 0, always true at 1.
  bool Chance(double probability) { return Uniform() < probability; }

 private:
  uint64_t state_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_RANDOM_H_
