#include <cmath>
#include <limits>
#include <type_traits>

#include "ops/cpu/cpu_backend.h"

namespace divvy::internal {
namespace {

template <typename T>
constexpr bool kIsSmallFloat = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

// Toward 0, to the nearest end where it does not fit, NaN to 0.
template <typename To, typename From>
To Saturate(From value) {
  if (value != value) return 0;
  // 2^digits is exact in any floating type, the largest value of an integer type is not.
  if (value >= std::ldexp(From(1), std::numeric_limits<To>::digits)) return std::numeric_limits<To>::max();
  if (value <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return static_cast<To>(value);
}

template <typename To, typename From>
To Convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (kIsSmallFloat<From>) {
    return Convert<To>(value.ToFloat());
  } else if constexpr (kIsSmallFloat<To>) {
    return To::FromFloat(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return Saturate<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

template <typename From, typename To>
void CastAs(const Tensor& x, Tensor& y) {
  const From* __restrict from = x.data_as<From>();
  To* __restrict to = y.fresh_data<To>();
  const int64_t n = y.shape().num_elements();
  for (int64_t i = 0; i < n; ++i) to[i] = Convert<To>(from[i]);
}

}  // namespace

void CpuBackend::Cast(const Tensor& x, Tensor& y) const {
  DispatchDType(
      x.dtype(),
      [&](auto from) {
        return DispatchDType(
            y.dtype(), [&](auto to) { return CastAs<decltype(from), decltype(to)>(x, y), 0; }, 0);
      },
      0);
}

}  // namespace divvy::internal
