#include "base/half.h"
#include "ops/convert.h"
#include "ops/cuda/kernel_math.h"

namespace divvy::cuda {
namespace {

// Calls use(T{}) with the C++ type.
template <typename Use>
void WithElement(Element element, Use&& use) {
  switch (element) {
    case Element::kBool: return use(bool{});
    case Element::kInt8: return use(int8_t{});
    case Element::kUInt8: return use(uint8_t{});
    case Element::kInt32: return use(int32_t{});
    case Element::kInt64: return use(int64_t{});
    case Element::kFloat16: return use(HalfBits{});
    case Element::kBFloat16: return use(BFloat16Bits{});
    case Element::kFloat32: return use(float{});
    case Element::kFloat64: return use(double{});
  }
}

template <typename From, typename To>
void CastAs(Stream stream, const From* from, To* to, int64_t n) {
  ForEach(stream, n, [=] DIVVY_BODY(int64_t i) { to[i] = internal::Convert<To>(from[i]); });
}

}  // namespace

void KernelMath::Cast(int device, const Array& x, const Array& y) {
  const Stream stream = Use(device);
  WithElement(x.element, [&](auto from) {
    WithElement(y.element, [&](auto to) {
      CastAs(stream, x.as<const decltype(from)>(), y.as<decltype(to)>(), y.size());
    });
  });
}

}  // namespace divvy::cuda
