// Conversions of IEEE half (binary16 of IEEE 754) and bfloat16 (the upper half of a float) to and
// from float. Every kind of device gives the same bits.
//
// FromFloat rounds to nearest, ties to even. A number that is above the largest finite one by half
// a step or more (for a half: from 65520 on) becomes infinity. A number below the least normal one
// becomes denormal or 0, and keeps its sign. A NaN stays a NaN: a bfloat16 keeps the upper bits of
// its payload, a half keeps none. ToFloat is exact. Pure; thread-safe. tensor/dtype.h has these
// types as element types.
#ifndef DIVVY_BASE_HALF_H_
#define DIVVY_BASE_HALF_H_

#include <cstdint>
#include <cstring>

#include "base/host_device.h"

namespace divvy {

// The bits of a float, and the float with these bits.
DIVVY_HOST_DEVICE inline uint32_t BitsOfFloat(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

DIVVY_HOST_DEVICE inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

struct HalfBits {
  uint16_t bits = 0;

  DIVVY_HOST_DEVICE static HalfBits FromFloat(float value) {
    const uint32_t bits = BitsOfFloat(value), sign = (bits >> 16) & 0x8000u,
                   magnitude = bits & 0x7FFFFFFFu;
    // NaN
    if (magnitude > 0x7F800000u) return {static_cast<uint16_t>(sign | 0x7E00u)};
    // rounds to infinity
    if (magnitude >= 0x477FF000u) return {static_cast<uint16_t>(sign | 0x7C00u)};
    // subnormal: adding 0.5 aligns and rounds the mantissa
    if (magnitude < 0x38800000u) {
      return {static_cast<uint16_t>(
          sign | (BitsOfFloat(FloatFromBits(magnitude) + 0.5f) - BitsOfFloat(0.5f)))};
    }
    const uint32_t rounded = magnitude - 0x38000000u + 0xFFFu + ((magnitude >> 13) & 1u);
    return {static_cast<uint16_t>(sign | (rounded >> 13))};
  }
  DIVVY_HOST_DEVICE float ToFloat() const {
    const uint32_t sign = (bits & 0x8000u) << 16, magnitude = bits & 0x7FFFu;
    if (magnitude >= 0x7C00u)
      return FloatFromBits(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
    if (magnitude < 0x400u)
      return FloatFromBits(sign | BitsOfFloat(static_cast<float>(magnitude) * 0x1.0p-24f));
    return FloatFromBits(sign | ((magnitude << 13) + 0x38000000u));
  }
};

struct BFloat16Bits {
  uint16_t bits = 0;

  DIVVY_HOST_DEVICE static BFloat16Bits FromFloat(float value) {
    const uint32_t bits = BitsOfFloat(value);
    // A NaN stays a NaN, even if its payload is only in the lower bits.
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return {static_cast<uint16_t>((bits >> 16) | 0x40u)};
    return {static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16)};
  }
  DIVVY_HOST_DEVICE float ToFloat() const {
    return FloatFromBits(static_cast<uint32_t>(bits) << 16);
  }
};

}  // namespace divvy

#endif  // DIVVY_BASE_HALF_H_
