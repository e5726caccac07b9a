// How one element is computed with: the rules for halves and integers, in one place.
#ifndef DIVVY_KERNELS_ELEMENT_H_
#define DIVVY_KERNELS_ELEMENT_H_

#include <cstdint>
#include <type_traits>

#include "tensor/dtype.h"

namespace divvy::internal {

// Converts between the type that a tensor stores and the type that is computed in:
//   float16, bfloat16   float32; the result is rounded once
//   integers            unsigned, so that overflow wraps around and is defined; TensorFlow does so
//   float32, float64    themselves
template <typename T>
struct Element {
  using Computed = std::conditional_t<std::is_integral_v<T>,
                                      std::conditional_t<(sizeof(T) > 4), uint64_t, uint32_t>, T>;
  static Computed Load(T value) { return static_cast<Computed>(value); }
  static T Store(Computed value) { return static_cast<T>(value); }
};
template <typename Narrow>
struct NarrowElement {
  using Computed = float;
  static float Load(Narrow value) { return value.ToFloat(); }
  static Narrow Store(float value) { return Narrow::FromFloat(value); }
};
template <>
struct Element<Half> : NarrowElement<Half> {};
template <>
struct Element<BFloat16> : NarrowElement<BFloat16> {};

}  // namespace divvy::internal

#endif  // DIVVY_KERNELS_ELEMENT_H_
