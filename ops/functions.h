// Functions of one element, shared by all backends. Compilers can vectorize them: the float
// versions have no branch, call or table. The double versions use the standard library.
//
// The float versions approximate by polynomials on a reduced range (those of Exp and Tanh: Moshier,
// Cephes, 1984 ff.), with a relative error below 4e-7, and LogOf within 1 ulp (ops_test). They
// accept every float: infinities give the limits, and NaN stays NaN. Exp returns denormal numbers,
// 0 and infinity at the ends of float's range.
#ifndef DIVVY_OPS_FUNCTIONS_H_
#define DIVVY_OPS_FUNCTIONS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "base/host_device.h"
#include "ops/math.h"

namespace divvy::internal {

// 2^n. REQUIRES: -126 <= n <= 127.
DIVVY_HOST_DEVICE inline float PowerOfTwo(int32_t n) {
  const uint32_t bits = static_cast<uint32_t>(n + 127) << 23;
  float power;
  std::memcpy(&power, &bits, sizeof(power));
  return power;
}

// e^x = 2^n e^r, where n is the integer nearest to x / ln 2, so |r| <= ln 2 / 2. ln 2 is subtracted
// in two parts; n times the first part is exact.
DIVVY_HOST_DEVICE inline float ExpOf(float x) {
  // 1.5 * 2^23: adding a number rounds it to an integer, which is then in the last bits.
  constexpr float kRounder = 12582912.0f;
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
  // In two steps, because 2^n may be out of float's range where the result is not.
  const int32_t half = n >> 1;
  return p * PowerOfTwo(half) * PowerOfTwo(n - half);
}
DIVVY_HOST_DEVICE inline double ExpOf(double x) { return std::exp(x); }

// log(1 + e) = 2 artanh(e / (2 + e)). REQUIRES: 0 <= e <= 1.
DIVVY_HOST_DEVICE inline float Log1pOfUnit(float e) {
  const float z = e / (2.0f + e), w = z * z;
  float p = 1.0f / 13;
  p = p * w + 1.0f / 11;
  p = p * w + 1.0f / 9;
  p = p * w + 1.0f / 7;
  p = p * w + 1.0f / 5;
  p = p * w + 1.0f / 3;
  return 2.0f * z * (p * w + 1.0f);
}
DIVVY_HOST_DEVICE inline double Log1pOfUnit(double e) { return std::log1p(e); }

// The argument of ExpOf is never above 0, so it does not overflow.
template <typename T>
DIVVY_HOST_DEVICE T SigmoidOf(T x) {
  const T e = ExpOf(-std::abs(x)), s = 1 / (1 + e);
  return x >= 0 ? s : e * s;
}

template <typename T>
DIVVY_HOST_DEVICE T SoftplusOf(T x) {
  return std::max(x, T(0)) + Log1pOfUnit(ExpOf(-std::abs(x)));
}

// Uses an odd polynomial near 0, where the quotient of exponentials would lose digits.
DIVVY_HOST_DEVICE inline float TanhOf(float x) {
  const float a = std::abs(x), e = ExpOf(-2.0f * a), w = x * x;
  const float far = std::copysign((1.0f - e) / (1.0f + e), x);
  float p = -5.70498872745e-3f;
  p = p * w + 2.06390887954e-2f;
  p = p * w - 5.37397155531e-2f;
  p = p * w + 1.33314422036e-1f;
  p = p * w - 3.33332819422e-1f;
  return a < 0.625f ? x + x * w * p : far;
}
DIVVY_HOST_DEVICE inline double TanhOf(double x) { return std::tanh(x); }

// Phi(x), the normal distribution function, where `e` is exp(-x^2 / 2). Its tail is e t p(t) with
// t = 1 / (1 + |x| / 4), which has no cancellation, unlike 1 + erf. p is the best polynomial of its
// degree on [0, 1]; its relative error is 9.1e-8 there, and that of the tail below 6e-7 for
// |x| < 3. It grows with x^2, as that of `e` does.
DIVVY_HOST_DEVICE inline float NormalCdf(float x, float e) {
  const float t = 1.0f / (1.0f + 0.25f * std::abs(x));
  float p = 0.020814888403f;
  p = p * t - 0.0853892299368f;
  p = p * t + 0.103798857523f;
  p = p * t - 0.0397468633678f;
  p = p * t + 0.0682739957334f;
  p = p * t + 0.0574462582406f;
  p = p * t + 0.0818896317661f;
  p = p * t + 0.0934395147095f;
  p = p * t + 0.0997373967683f;
  p = p * t + 0.0997355610364f;
  const float tail = p * t * e;
  return x < 0.0f ? tail : 1.0f - tail;
}
DIVVY_HOST_DEVICE inline double NormalCdf(double x, double) {
  return 0.5 * (1 + std::erf(x * M_SQRT1_2));
}

// x Phi(x), and its derivative Phi(x) + x phi(x).
template <typename T>
DIVVY_HOST_DEVICE T GeluOf(T x) {
  return x * NormalCdf(x, ExpOf(T(-0.5) * x * x));
}
template <typename T>
DIVVY_HOST_DEVICE T GeluSlope(T x) {
  constexpr T kDensityAtZero = T(M_2_SQRTPI * M_SQRT1_2 / 2);  // 1 / sqrt(2 pi)
  const T e = ExpOf(T(-0.5) * x * x);
  return NormalCdf(x, e) + x * kDensityAtZero * e;
}

// log x = n ln 2 + log(1 + r), where 1 + r is in [sqrt(1/2), sqrt(2)) (Cephes). Within 1 ulp of the
// logarithm (ops_test). log 0 is -infinity, of less NaN.
DIVVY_HOST_DEVICE inline float LogOf(float x) {
  constexpr float kSmallestNormal = 1.17549435e-38f;
  const bool denormal = x < kSmallestNormal;
  const float scaled = denormal ? x * 16777216.0f : x;
  uint32_t bits;  // unsigned: the differences wrap for a negative x
  std::memcpy(&bits, &scaled, sizeof(bits));
  const int32_t n = static_cast<int32_t>(bits - 0x3F3504F3u) >> 23;  // of sqrt(1/2)
  const uint32_t reduced_bits = bits - (static_cast<uint32_t>(n) << 23);
  float reduced;
  std::memcpy(&reduced, &reduced_bits, sizeof(reduced));
  const float r = reduced - 1.0f, w = r * r;
  const float count = static_cast<float>(n) - (denormal ? 24.0f : 0.0f);
  float p = 7.0376836292e-2f;
  p = p * r - 1.1514610310e-1f;
  p = p * r + 1.1676998740e-1f;
  p = p * r - 1.2420140846e-1f;
  p = p * r + 1.4249322787e-1f;
  p = p * r - 1.6668057665e-1f;
  p = p * r + 2.0000714765e-1f;
  p = p * r - 2.4999993993e-1f;
  p = p * r + 3.3333331174e-1f;
  const float low = r * w * p - count * 2.12194440e-4f - 0.5f * w;
  const float log = (r + low) + count * 0.693359375f;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const float of_zero = x == 0.0f ? -kInfinity : log;
  const float of_negative = x < 0.0f ? kNaN : of_zero;
  return x < kInfinity ? of_negative : x;  // NaN and infinity stay
}
DIVVY_HOST_DEVICE inline double LogOf(double x) { return std::log(x); }

// The result is NaN if either operand is.
template <typename T>
DIVVY_HOST_DEVICE T Larger(T v, T w) {
  return v >= w || v != v ? v : w;
}

template <typename T>
DIVVY_HOST_DEVICE T Smaller(T v, T w) {
  return v <= w || v != v ? v : w;
}

// -1, 0 or 1; a NaN stays.
template <typename T>
DIVVY_HOST_DEVICE T SignOf(T v) {
  return v > 0 ? T(1) : v < 0 ? T(-1) : v;
}

// ---- by name ------------------------------------------------------------------------------------
// Objects, not lambdas: a kernel takes them by value.

#define DIVVY_FUNCTION1(Name, expression)       \
  struct Name {                                 \
    template <typename T>                       \
    DIVVY_HOST_DEVICE T operator()(T v) const { \
      return expression;                        \
    }                                           \
  }
#define DIVVY_FUNCTION2(Name, expression)            \
  struct Name {                                      \
    template <typename T>                            \
    DIVVY_HOST_DEVICE T operator()(T v, T w) const { \
      return expression;                             \
    }                                                \
  }

DIVVY_FUNCTION1(Negative, -v);
DIVVY_FUNCTION1(Absolute, std::abs(v));
DIVVY_FUNCTION1(Exponential, ExpOf(v));
DIVVY_FUNCTION1(Logarithm, LogOf(v));
DIVVY_FUNCTION1(SquareRoot, std::sqrt(v));
DIVVY_FUNCTION1(Squared, v* v);
DIVVY_FUNCTION1(Rectified, v < 0 ? T(0) : v);  // a NaN stays one
DIVVY_FUNCTION1(Sigmoidal, SigmoidOf(v));
DIVVY_FUNCTION1(HyperbolicTangent, TanhOf(v));
DIVVY_FUNCTION1(GeluUnit, GeluOf(v));
DIVVY_FUNCTION1(SoftplusUnit, SoftplusOf(v));

// v is the kept operand (KeptForGradient), w the gradient of the result.
DIVVY_FUNCTION2(NegativeGradient, -w);
DIVVY_FUNCTION2(AbsoluteGradient, w* SignOf(v));
DIVVY_FUNCTION2(ExponentialGradient, w* v);
DIVVY_FUNCTION2(LogarithmGradient, w / v);
DIVVY_FUNCTION2(SquareRootGradient, w* T(0.5) / v);
DIVVY_FUNCTION2(SquaredGradient, w * 2 * v);
DIVVY_FUNCTION2(RectifiedGradient, v > 0 ? w : T(0));
DIVVY_FUNCTION2(SigmoidalGradient, w* v*(1 - v));
DIVVY_FUNCTION2(HyperbolicTangentGradient, w*(1 - v * v));
DIVVY_FUNCTION2(GeluGradient, w* GeluSlope(v));
DIVVY_FUNCTION2(SoftplusGradient, w* SigmoidOf(v));

DIVVY_FUNCTION2(Sum, v + w);
DIVVY_FUNCTION2(Difference, v - w);
DIVVY_FUNCTION2(Product, v* w);
DIVVY_FUNCTION2(Quotient, v / w);
DIVVY_FUNCTION2(Maximum, Larger(v, w));
DIVVY_FUNCTION2(Minimum, Smaller(v, w));
DIVVY_FUNCTION2(Power, std::pow(v, w));
DIVVY_FUNCTION2(IsLess, v < w ? T(1) : T(0));
DIVVY_FUNCTION2(IsLessEqual, v <= w ? T(1) : T(0));
DIVVY_FUNCTION2(IsGreaterEqual, v >= w ? T(1) : T(0));
DIVVY_FUNCTION2(IsEqual, v == w ? T(1) : T(0));
DIVVY_FUNCTION2(IsNotLessEqual, v <= w ? T(0) : T(1));
DIVVY_FUNCTION2(IsNotGreaterEqual, v >= w ? T(0) : T(1));
DIVVY_FUNCTION2(KeptWhere, w != 0 ? v : T(0));
DIVVY_FUNCTION2(DroppedWhere, w != 0 ? T(0) : v);
DIVVY_FUNCTION2(PowerByBase, w* std::pow(v, w - 1));
DIVVY_FUNCTION2(PowerByExponent, v > 0 ? std::pow(v, w) * std::log(v) : T(0));

// function(v + w).
template <typename Function>
struct AfterSum {
  template <typename T>
  DIVVY_HOST_DEVICE T operator()(T v, T w) const {
    return Function()(v + w);
  }
};

#undef DIVVY_FUNCTION1
#undef DIVVY_FUNCTION2

// Calls use(the function object).
template <typename Use>
void WithUnary(UnaryOp op, Use&& use) {
  switch (op) {
    case UnaryOp::kNegative: return use(Negative());
    case UnaryOp::kAbs: return use(Absolute());
    case UnaryOp::kExp: return use(Exponential());
    case UnaryOp::kLog: return use(Logarithm());
    case UnaryOp::kSqrt: return use(SquareRoot());
    case UnaryOp::kSquare: return use(Squared());
    case UnaryOp::kRelu: return use(Rectified());
    case UnaryOp::kSigmoid: return use(Sigmoidal());
    case UnaryOp::kTanh: return use(HyperbolicTangent());
    case UnaryOp::kGelu: return use(GeluUnit());
    case UnaryOp::kSoftplus: return use(SoftplusUnit());
  }
}

// REQUIRES: KeptForGradient(op) is kOutput.
template <typename Use>
void WithUnaryOfOutput(UnaryOp op, Use&& use) {
  switch (op) {
    case UnaryOp::kExp: return use(Exponential());
    case UnaryOp::kSqrt: return use(SquareRoot());
    case UnaryOp::kRelu: return use(Rectified());
    case UnaryOp::kSigmoid: return use(Sigmoidal());
    case UnaryOp::kTanh: return use(HyperbolicTangent());
    case UnaryOp::kNegative:
    case UnaryOp::kAbs:
    case UnaryOp::kLog:
    case UnaryOp::kSquare:
    case UnaryOp::kGelu:
    case UnaryOp::kSoftplus: return;
  }
}

template <typename Use>
void WithUnaryGradient(UnaryOp op, Use&& use) {
  switch (op) {
    case UnaryOp::kNegative: return use(NegativeGradient());
    case UnaryOp::kAbs: return use(AbsoluteGradient());
    case UnaryOp::kExp: return use(ExponentialGradient());
    case UnaryOp::kLog: return use(LogarithmGradient());
    case UnaryOp::kSqrt: return use(SquareRootGradient());
    case UnaryOp::kSquare: return use(SquaredGradient());
    case UnaryOp::kRelu: return use(RectifiedGradient());
    case UnaryOp::kSigmoid: return use(SigmoidalGradient());
    case UnaryOp::kTanh: return use(HyperbolicTangentGradient());
    case UnaryOp::kGelu: return use(GeluGradient());
    case UnaryOp::kSoftplus: return use(SoftplusGradient());
  }
}

template <typename Use>
void WithBinary(BinaryOp op, Use&& use) {
  switch (op) {
    case BinaryOp::kAdd: return use(Sum());
    case BinaryOp::kSubtract: return use(Difference());
    case BinaryOp::kMultiply: return use(Product());
    case BinaryOp::kDivide: return use(Quotient());
    case BinaryOp::kMaximum: return use(Maximum());
    case BinaryOp::kMinimum: return use(Minimum());
    case BinaryOp::kPower: return use(Power());
    case BinaryOp::kLess: return use(IsLess());
    case BinaryOp::kLessEqual: return use(IsLessEqual());
    case BinaryOp::kGreaterEqual: return use(IsGreaterEqual());
    case BinaryOp::kEqual: return use(IsEqual());
    case BinaryOp::kNotLessEqual: return use(IsNotLessEqual());
    case BinaryOp::kNotGreaterEqual: return use(IsNotGreaterEqual());
    case BinaryOp::kKeepWhere: return use(KeptWhere());
    case BinaryOp::kDropWhere: return use(DroppedWhere());
    case BinaryOp::kPowerByBase: return use(PowerByBase());
    case BinaryOp::kPowerByExponent: return use(PowerByExponent());
  }
}

}  // namespace divvy::internal

#endif  // DIVVY_OPS_FUNCTIONS_H_
