#include "kernels/halves.h"

#include "base/half.h"
#include "kernels/random_rounding.h"

namespace divvy {
namespace {

template <typename Use>
void As(DType dtype, const Use& use) {
  if (dtype == DType::kFloat16)
    use(HalfBits());
  else
    use(BFloat16Bits());
}

}  // namespace

void ToHalves(DType dtype, const float* in, int64_t count, void* out) {
  As(dtype, [&](auto bits) {
    using Bits = decltype(bits);
    for (int64_t i = 0; i < count; ++i) static_cast<Bits*>(out)[i] = Bits::FromFloat(in[i]);
  });
}

void ToHalvesAtRandom(DType dtype, const float* in, int64_t count, const RoundingDraw& draw,
                      void* out) {
  const auto words = [&draw](uint64_t group) {
    return Philox(draw.key, draw.counter_low, draw.counter_high + group);
  };
  As(dtype, [&](auto bits) {
    internal::RoundAtRandom(in, count, words, static_cast<decltype(bits)*>(out));
  });
}

void FromHalves(DType dtype, const void* in, int64_t count, float* out) {
  As(dtype, [&](auto bits) {
    for (int64_t i = 0; i < count; ++i)
      out[i] = static_cast<const decltype(bits)*>(in)[i].ToFloat();
  });
}

}  // namespace divvy
