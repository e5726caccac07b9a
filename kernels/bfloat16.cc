#include "kernels/bfloat16.h"

#include <algorithm>

#include "base/philox.h"

namespace divvy {
namespace {

// One word of Philox has the chances of two elements.
constexpr int64_t kEach = 8;

BFloat16Bits AtRandom(float value, uint32_t chance) {
  const uint32_t bits = BitsOfFloat(value);
  if ((bits & 0x7F800000u) == 0x7F800000u) return BFloat16Bits::FromFloat(value);
  return {static_cast<uint16_t>((bits + chance) >> 16)};
}

}  // namespace

void ToBFloat16(const float* in, int64_t count, BFloat16Bits* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = BFloat16Bits::FromFloat(in[i]);
}

void ToBFloat16AtRandom(const float* in, int64_t count, uint64_t key, BFloat16Bits* out) {
  for (int64_t begin = 0; begin < count; begin += kEach) {
    const PhiloxWords words = Philox(key, static_cast<uint64_t>(begin / kEach), 0);
    const int64_t end = std::min(count, begin + kEach);
    for (int64_t i = begin; i < end; ++i)
      out[i] = AtRandom(in[i], words.word[(i - begin) / 2] >> ((i % 2) * 16) & 0xFFFFu);
  }
}

void FromBFloat16(const BFloat16Bits* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = in[i].ToFloat();
}

}  // namespace divvy
