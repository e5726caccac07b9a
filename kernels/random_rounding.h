// How a float32 is rounded up or down at random. Internal to kernels.
#ifndef DIVVY_KERNELS_RANDOM_ROUNDING_H_
#define DIVVY_KERNELS_RANDOM_ROUNDING_H_

#include <algorithm>
#include <cstdint>

#include "base/half.h"
#include "base/philox.h"

namespace divvy::internal {

// `chance` has 16 random bits. Infinities and NaN stay.
inline BFloat16Bits RoundedAtRandom(float value, uint32_t chance, BFloat16Bits) {
  const uint32_t bits = BitsOfFloat(value);
  if ((bits & 0x7F800000u) == 0x7F800000u) return BFloat16Bits::FromFloat(value);
  return {static_cast<uint16_t>((bits + chance) >> 16)};
}
inline HalfBits RoundedAtRandom(float value, uint32_t chance, HalfBits) {
  constexpr uint32_t kLargest = 0x477FE000u, kInfinite = 0x477FF000u, kLeastNormal = 0x38800000u;
  const uint32_t bits = BitsOfFloat(value), sign = (bits >> 16) & 0x8000u,
                 magnitude = bits & 0x7FFFFFFFu;
  if (magnitude >= kInfinite) return HalfBits::FromFloat(value);
  if (magnitude >= kLargest) return {static_cast<uint16_t>(sign | 0x7BFFu)};
  if (magnitude >= kLeastNormal)
    return {static_cast<uint16_t>(sign | ((magnitude - 0x38000000u + (chance >> 3)) >> 13))};
  // In steps of the least denormal number.
  const float steps = FloatFromBits(magnitude) * 0x1.0p24f;
  const auto whole = static_cast<uint32_t>(steps);
  const auto rest = static_cast<uint32_t>((steps - static_cast<float>(whole)) * 0x1.0p16f);
  return {static_cast<uint16_t>(sign | (whole + (chance < rest ? 1 : 0)))};
}

// `words(i)` gives the Philox words of elements 8 i to 8 i + 7: each has the chances of two.
template <typename Bits, typename Words>
void RoundAtRandom(const float* in, int64_t count, const Words& words, Bits* out) {
  constexpr int64_t kEach = 8;
  for (int64_t begin = 0; begin < count; begin += kEach) {
    const PhiloxWords drawn = words(static_cast<uint64_t>(begin / kEach));
    const int64_t end = std::min(count, begin + kEach);
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t chance = drawn.word[(i - begin) / 2] >> ((i % 2) * 16) & 0xFFFFu;
      out[i] = RoundedAtRandom(in[i], chance, Bits());
    }
  }
}

}  // namespace divvy::internal

#endif  // DIVVY_KERNELS_RANDOM_ROUNDING_H_
