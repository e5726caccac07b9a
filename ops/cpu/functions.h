// Functions of one element that compilers vectorise: for float no branch, no call and no table; for double the standard library's.
//
// The approximations of float are polynomials on a reduced range (those of Exp and Tanh: Moshier, Cephes, 1984 ff.), within 4e-7 of the true value, relative
// (ops_test). They take every float: infinities give the limits, NaN stays. Exp gives denormal numbers, and 0 and infinity where float ends.
#ifndef DIVVY_OPS_CPU_FUNCTIONS_H_
#define DIVVY_OPS_CPU_FUNCTIONS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace divvy::internal {

// 2^n. REQUIRES: -126 <= n <= 127.
inline float PowerOfTwo(int32_t n) {
  const uint32_t bits = static_cast<uint32_t>(n + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return power;
}

// e^x = 2^n e^r with n the integer next to x / ln 2, so that |r| <= ln 2 / 2. ln 2 is taken off in two parts, of which the first times n is exact.
inline float ExpOf(float x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to an integer, which then stands in its last bits
  const float clamped = std::min(std::max(x, -104.0f), 89.0f);
  const float shifted = clamped * 1.44269504088896341f + kRounder;
  const float count = shifted - kRounder;
  const float r = clamped - count * 0.693359375f + count * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  uint32_t bits, zero;
  std::memcpy(&bits, &shifted, sizeof(bits));
  std::memcpy(&zero, &kRounder, sizeof(zero));
  const auto n = static_cast<int32_t>(bits - zero);
  const int32_t half = n / 2;  // in two steps, for 2^n alone may be no float where the result is
  return p * PowerOfTwo(half) * PowerOfTwo(n - half);
}
inline double ExpOf(double x) { return std::exp(x); }

// log(1 + e) = 2 artanh(e / (2 + e)). REQUIRES: 0 <= e <= 1.
inline float Log1pOfUnit(float e) {
  const float z = e / (2.0f + e), w = z * z;
  float p = 1.0f / 13;
  p = p * w + 1.0f / 11;
  p = p * w + 1.0f / 9;
  p = p * w + 1.0f / 7;
  p = p * w + 1.0f / 5;
  p = p * w + 1.0f / 3;
  return 2.0f * z * (p * w + 1.0f);
}
inline double Log1pOfUnit(double e) { return std::log1p(e); }

// Never the exponential of something large.
template <typename T>
T SigmoidOf(T x) {
  const T e = ExpOf(-std::abs(x)), s = 1 / (1 + e);
  return x >= 0 ? s : e * s;
}

template <typename T>
T SoftplusOf(T x) {
  return std::max(x, T(0)) + Log1pOfUnit(ExpOf(-std::abs(x)));
}

// An odd polynomial near 0, where the quotient of exponentials would cancel.
inline float TanhOf(float x) {
  const float a = std::abs(x), e = ExpOf(-2.0f * a), w = x * x;
  const float far = std::copysign((1.0f - e) / (1.0f + e), x);
  float p = -5.70498872745e-3f;
  p = p * w + 2.06390887954e-2f;
  p = p * w - 5.37397155531e-2f;
  p = p * w + 1.33314422036e-1f;
  p = p * w - 3.33332819422e-1f;
  return a < 0.625f ? x + x * w * p : far;
}
inline double TanhOf(double x) { return std::tanh(x); }

// In double and in four lanes: as exact as one wants, and not one long chain of additions.
template <typename T>
double SumOf(const T* x, int64_t n) {
  double lanes[4] = {0, 0, 0, 0};
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int lane = 0; lane < 4; ++lane) lanes[lane] += x[i + lane];
  }
  for (; i < n; ++i) lanes[0] += x[i];
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

}  // namespace divvy::internal

#endif  // DIVVY_OPS_CPU_FUNCTIONS_H_
