// Converts one element from one type to another, for every backend.
#ifndef DIVVY_OPS_CONVERT_H_
#define DIVVY_OPS_CONVERT_H_

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "base/host_device.h"

namespace divvy::internal {

// Whether T is a storage format of a float: Half, BFloat16 and the like.
template <typename T, typename = void>
struct IsSmallFloat : std::false_type {};
template <typename T>
struct IsSmallFloat<T, std::void_t<decltype(std::declval<const T&>().ToFloat())>> : std::true_type {
};

// Floating to integer: truncates toward 0, saturates at the ends of the range, and turns NaN into
// 0.
template <typename To, typename From>
DIVVY_HOST_DEVICE To Saturate(From value) {
  if (value != value) return 0;
  // 2^digits is exact in every floating type; the largest value of an integer type is not.
  if (value >= std::ldexp(From(1), std::numeric_limits<To>::digits))
    return std::numeric_limits<To>::max();
  if (value <= static_cast<From>(std::numeric_limits<To>::min()))
    return std::numeric_limits<To>::min();
  return static_cast<To>(value);
}

// Converts one element as Cast of ops/ops.h. An integer that does not fit into a smaller integer
// type wraps around, as in C++.
template <typename To, typename From>
DIVVY_HOST_DEVICE To Convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (IsSmallFloat<From>::value) {
    return Convert<To>(value.ToFloat());
  } else if constexpr (IsSmallFloat<To>::value) {
    return To::FromFloat(static_cast<float>(value));
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != From(0);
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    return Saturate<To>(value);
  } else {
    return static_cast<To>(value);
  }
}

}  // namespace divvy::internal

#endif  // DIVVY_OPS_CONVERT_H_
