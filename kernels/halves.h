// float32 values stored as float16 or bfloat16.
#ifndef DIVVY_KERNELS_HALVES_H_
#define DIVVY_KERNELS_HALVES_H_

#include <cstdint>

#include "tensor/dtype.h"

namespace divvy {

// Pure; thread-safe. `in` and `out` have `count` elements and do not overlap. REQUIRES: `dtype` is
// kFloat16 or kBFloat16.

// Rounds to nearest, ties to even. What is too large becomes infinite (base/half.h).
void ToHalves(DType dtype, const float* in, int64_t count, void* out);
// Which random bits a rounding has: element i draws from Philox(key, counter_low,
// counter_high + i / 8), so the same arguments give the same bits.
struct RoundingDraw {
  uint64_t key = 0, counter_low = 0, counter_high = 0;
};
// Rounds each value up or down, with probabilities that give the value itself on average. So many
// small changes add up, though each is smaller than the last bit. What ToHalves makes infinite
// becomes so here, too; a float16 between 65504 and 65520 becomes 65504, and one below 2^-40 may
// become 0 always.
void ToHalvesAtRandom(DType dtype, const float* in, int64_t count, const RoundingDraw& draw,
                      void* out);
// Exact.
void FromHalves(DType dtype, const void* in, int64_t count, float* out);

}  // namespace divvy

#endif  // DIVVY_KERNELS_HALVES_H_
