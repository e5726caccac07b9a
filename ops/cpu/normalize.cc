#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_backend.h"

namespace divvy::internal {
namespace {

// The numbers that normalize a row: (x - mean) * factor. `floored`: epsilon replaced the norm, so
// the factor does not depend on the row.
struct Standard {
  double mean = 0;
  double factor = 0;
  bool floored = false;
};

template <typename T>
Standard LayerStandard(const T* x, int64_t n, double epsilon) {
  Standard standard;
  for (int64_t i = 0; i < n; ++i) standard.mean += x[i];
  standard.mean /= static_cast<double>(n);
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += (x[i] - standard.mean) * (x[i] - standard.mean);
  standard.factor = 1 / std::sqrt(squares / static_cast<double>(n) + epsilon);
  return standard;
}

template <typename T>
Standard L2Standard(const T* x, int64_t n, double epsilon) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(x[i]) * x[i];
  return {0, 1 / std::sqrt(std::max(squares, epsilon)), squares < epsilon};
}

template <typename T>
Standard StandardOf(Norm norm, const T* x, int64_t n, double epsilon) {
  return norm == Norm::kLayer ? LayerStandard(x, n, epsilon) : L2Standard(x, n, epsilon);
}

template <typename T>
void NormalizeRow(const Standard& s, const T* x, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = static_cast<T>((x[i] - s.mean) * s.factor);
}

// With y the normalised row: dx = factor (g - mean(g) - y mean(g y)) for a layer's norm, factor (g
// - y (g . y)) for the l2 norm.
template <typename T>
void GradientRow(Norm norm, const Standard& s, const T* x, const T* g, T* dx, int64_t n) {
  double sum = 0, dot = 0;
  for (int64_t i = 0; i < n; ++i) {
    sum += g[i];
    dot += g[i] * (x[i] - s.mean) * s.factor;
  }
  const double shift = norm == Norm::kLayer ? sum / static_cast<double>(n) : 0;
  const double along = s.floored ? 0 : norm == Norm::kLayer ? dot / static_cast<double>(n) : dot;
  for (int64_t i = 0; i < n; ++i)
    dx[i] = static_cast<T>(s.factor * (g[i] - shift - along * (x[i] - s.mean) * s.factor));
}

}  // namespace

void CpuBackend::Normalize(Norm norm, double epsilon, const Tensor& x, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t n = x.shape().dim(-1), elements = x.shape().num_elements();
    for (int64_t at = 0; at < elements; at += n) {
      const T* row = x.data_as<T>() + at;
      NormalizeRow(StandardOf(norm, row, n, epsilon), row, y.fresh_data<T>() + at, n);
    }
  });
}

void CpuBackend::NormalizeGradient(Norm norm, double epsilon, const Tensor& x,
                                   const Tensor& gradient, Tensor& dx) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t n = x.shape().dim(-1), elements = x.shape().num_elements();
    for (int64_t at = 0; at < elements; at += n) {
      const T* row = x.data_as<T>() + at;
      GradientRow(norm, StandardOf(norm, row, n, epsilon), row, gradient.data_as<T>() + at,
                  dx.fresh_data<T>() + at, n);
    }
  });
}

}  // namespace divvy::internal
