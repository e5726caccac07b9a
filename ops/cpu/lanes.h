// Reductions of a row that the compiler vectorizes. The lanes are a part of their definition, so
// every level of base/vector_level.h gives the same bits.
#ifndef DIVVY_OPS_CPU_LANES_H_
#define DIVVY_OPS_CPU_LANES_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "ops/functions.h"

namespace divvy::internal {

constexpr int kLanes = 16;

// The sum of term(i) for i in [0, n), in double: lane l adds those with i % kLanes == l in order,
// and then the lanes are added in pairs.
template <typename Term>
double SumInLanes(int64_t n, const Term& term) {
  double lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += static_cast<double>(term(i + lane));
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += static_cast<double>(term(i));
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

template <typename T>
double SumOf(const T* x, int64_t n) {
  return SumInLanes(n, [x](int64_t i) { return x[i]; });
}

template <typename T>
double Dot(const T* a, const T* b, int64_t n) {
  return SumInLanes(
      n, [a, b](int64_t i) { return static_cast<double>(a[i]) * static_cast<double>(b[i]); });
}

// The largest of n elements; NaN if one is; -infinity of none. +0 is larger than -0.
inline double LargestOf(const double* x, int64_t n) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < n; ++i) largest = Larger(largest, x[i]);
  return largest;
}
// The bits of a float, with those below the sign inverted if it is negative, are integers in the
// order of the floats. Their maximum does not depend on the order, and compilers vectorize it.
inline float LargestOf(const float* x, int64_t n) {
  constexpr int32_t kMagnitude = 0x7FFFFFFF, kInfinity = 0x7F800000, kNaN = 0x7FC00000;
  int32_t largest = std::numeric_limits<int32_t>::min(), largest_magnitude = 0;
  for (int64_t i = 0; i < n; ++i) {
    int32_t bits;
    std::memcpy(&bits, &x[i], sizeof(bits));
    largest_magnitude = std::max(largest_magnitude, bits & kMagnitude);
    largest = std::max(largest, bits ^ ((bits >> 31) & kMagnitude));
  }
  if (n == 0) return -std::numeric_limits<float>::infinity();
  if (largest_magnitude > kInfinity) largest = kNaN;
  largest ^= (largest >> 31) & kMagnitude;
  float value;
  std::memcpy(&value, &largest, sizeof(value));
  return value;
}

}  // namespace divvy::internal

#endif  // DIVVY_OPS_CPU_LANES_H_
