#include "base/random.h"

#include "base/philox.h"

#include <random>

namespace divvy {
namespace {

uint64_t Finalise(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15ull;

}  // namespace

uint64_t EntropySeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) ^ device();
}

uint64_t MixSeeds(uint64_t a, uint64_t b) { return Finalise(Finalise(a + kGolden) + b + kGolden); }

uint64_t HashText(absl::string_view text) {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return Finalise(hash);
}

std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high) {
  const PhiloxWords words = Philox(key, counter_low, counter_high);
  return {words.word[0], words.word[1], words.word[2], words.word[3]};
}

uint64_t Random::Next() { return Finalise(state_ += kGolden); }

uint64_t Random::Below(uint64_t bound) {
  // Rejects the top, uneven part of the range, so that every value is equally likely.
  const uint64_t limit = ~uint64_t{0} - (~uint64_t{0} % bound + 1) % bound;
  uint64_t value = Next();
  while (value > limit) value = Next();
  return value % bound;
}

double Random::Uniform() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }

}  // namespace divvy
