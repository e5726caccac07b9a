#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/parallel.h"

namespace divvy::internal {
namespace {

// The numbers that normalize a row: (x - mean) * factor. `floored`: epsilon replaced the norm, so
// the factor does not depend on the row.
struct Standard {
  double mean = 0;
  double factor = 0;
  bool floored = false;
};

// Sums of numbers that were centered in double, so that a large mean costs no digits.
template <typename T>
Standard LayerStandard(const T* x, int64_t n, double epsilon) {
  const double mean = SumOf(x, n) / static_cast<double>(n);
  const double squares = SumInLanes(n, [x, mean](int64_t i) {
    const double centered = static_cast<double>(x[i]) - mean;
    return centered * centered;
  });
  return {mean, 1 / std::sqrt(squares / static_cast<double>(n) + epsilon)};
}

template <typename T>
Standard L2Standard(const T* x, int64_t n, double epsilon) {
  const double squares = Dot(x, x, n);
  return {0, 1 / std::sqrt(std::max(squares, epsilon)), squares < epsilon};
}

template <typename T>
Standard StandardOf(Norm norm, const T* x, int64_t n, double epsilon) {
  return norm == Norm::kLayer ? LayerStandard(x, n, epsilon) : L2Standard(x, n, epsilon);
}

// x - mean in T. The mean is a sum of two T: the difference to the first is exact for elements near
// the mean, and the second has the digits that the first lacks.
template <typename T>
struct Centered {
  explicit Centered(const Standard& s)
      : high(static_cast<T>(s.mean)), low(static_cast<T>(s.mean - static_cast<double>(high))) {}
  T operator()(T x) const { return (x - high) - low; }
  T high, low;
};

template <typename T>
void NormalizeRow(const Standard& s, const T* __restrict x, T* __restrict y, int64_t n) {
  const Centered<T> centered(s);
  const T factor = static_cast<T>(s.factor);
  for (int64_t i = 0; i < n; ++i) y[i] = centered(x[i]) * factor;
}

// With y the normalised row: dx = factor (g - mean(g) - y mean(g y)) for a layer's norm, factor (g
// - y (g . y)) for the l2 norm.
template <typename T>
void GradientRow(Norm norm, const Standard& s, const T* __restrict x, const T* __restrict g,
                 T* __restrict dx, int64_t n) {
  const Centered<T> centered(s);
  const double count = norm == Norm::kLayer ? static_cast<double>(n) : 1;
  const double dot = s.factor * SumInLanes(n, [&](int64_t i) {
                       return static_cast<double>(g[i]) * static_cast<double>(centered(x[i]));
                     });
  const T shift = norm == Norm::kLayer ? static_cast<T>(SumOf(g, n) / count) : T(0);
  const T along = s.floored ? T(0) : static_cast<T>(dot / count * s.factor);
  const T factor = static_cast<T>(s.factor);
  for (int64_t i = 0; i < n; ++i) dx[i] = factor * (g[i] - shift - along * centered(x[i]));
}

// Calls row(offset of a row) for each row, of `n` elements, of a shape.
template <typename T, typename Row>
void ForEachRow(const Shape& shape, const Row& row) {
  const int64_t n = shape.dim(-1);
  InSlices<T>(n == 0 ? 0 : shape.num_elements() / n, n, [=, &row](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) row(i * n);
  });
}

}  // namespace

void CpuBackend::Normalize(Norm norm, double epsilon, const Tensor& x, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t n = x.shape().dim(-1);
    const T* const from = x.data_as<T>();
    T* const to = y.fresh_data<T>();
    ForEachRow<T>(x.shape(), [=](int64_t at) {
      NormalizeRow(StandardOf(norm, from + at, n, epsilon), from + at, to + at, n);
    });
  });
}

void CpuBackend::NormalizeGradient(Norm norm, double epsilon, const Tensor& x,
                                   const Tensor& gradient, Tensor& dx) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t n = x.shape().dim(-1);
    const T* const from = x.data_as<T>();
    const T* const gradients = gradient.data_as<T>();
    T* const to = dx.fresh_data<T>();
    ForEachRow<T>(x.shape(), [=](int64_t at) {
      GradientRow(norm, StandardOf(norm, from + at, n, epsilon), from + at, gradients + at, to + at,
                  n);
    });
  });
}

}  // namespace divvy::internal
