#include "kernels/bfloat16.h"

#include "base/philox.h"
#include "kernels/random_rounding.h"

namespace divvy {

void ToBFloat16(const float* in, int64_t count, BFloat16Bits* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = BFloat16Bits::FromFloat(in[i]);
}

void ToBFloat16AtRandom(const float* in, int64_t count, uint64_t key, BFloat16Bits* out) {
  internal::RoundAtRandom(
      in, count, [key](uint64_t group) { return Philox(key, group, 0); }, out);
}

void FromBFloat16(const BFloat16Bits* in, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = in[i].ToFloat();
}

}  // namespace divvy
