// float32 values as bfloat16, which are half as large.
#ifndef DIVVY_KERNELS_BFLOAT16_H_
#define DIVVY_KERNELS_BFLOAT16_H_

#include <cstdint>

#include "base/half.h"

namespace divvy {

// Pure; thread-safe. `in` and `out` have `count` elements and do not overlap.

// Rounds as BFloat16Bits::FromFloat does: to nearest, ties to even. The largest finite values
// become infinite.
void ToBFloat16(const float* in, int64_t count, BFloat16Bits* out);
// Rounds each value up or down, with probabilities that give the value itself on average.
// Infinities and NaN stay; the largest finite values may become infinite. Element i draws from
// Philox by `key` and i, so the same arguments give the same bits.
void ToBFloat16AtRandom(const float* in, int64_t count, uint64_t key, BFloat16Bits* out);
// Exact.
void FromBFloat16(const BFloat16Bits* in, int64_t count, float* out);

}  // namespace divvy

#endif  // DIVVY_KERNELS_BFLOAT16_H_
