#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/random.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/functions.h"
#include "ops/loops.h"

namespace divvy::internal {
namespace {

template <typename T, typename Function>
void Map(const Tensor& x, Tensor& y, Function function) {
  const T* __restrict from = x.data_as<T>();
  T* __restrict to = y.fresh_data<T>();
  const int64_t n = y.shape().num_elements();
  for (int64_t i = 0; i < n; ++i) to[i] = function(from[i]);
}

template <typename T, typename Function>
void Map2(const Tensor& x, const Tensor& z, Tensor& y, Function function) {
  const T* __restrict a = x.data_as<T>();
  const T* __restrict b = z.data_as<T>();
  T* __restrict to = y.fresh_data<T>();
  const int64_t n = y.shape().num_elements();
  for (int64_t i = 0; i < n; ++i) to[i] = function(a[i], b[i]);
}

// One innermost loop. The strides are constants in each branch, so the compiler vectorizes each
// branch.
template <typename T, typename Function>
void BinaryInner(const T* __restrict a, int64_t a_stride, const T* __restrict b, int64_t b_stride,
                 T* __restrict y, int64_t n, Function function) {
  if (a_stride == 1 && b_stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = function(a[i], b[i]);
  } else if (a_stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = function(a[i], *b);
  } else if (b_stride == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = function(*a, b[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = function(*a, *b);
  }
}

template <typename T, typename Function>
void BinaryLoops(const Tensor& a, const Tensor& b, Tensor& y, Function function) {
  const LoopNest<3> loops = MakeLoops<3, Shape>(y.shape(), {&a.shape(), &b.shape(), &y.shape()});
  const int inner = loops.rank - 1;
  const T* from_a = a.data_as<T>();
  const T* from_b = b.data_as<T>();
  T* to = y.fresh_data<T>();
  ForEachInnerLoop(loops, [&](const std::array<int64_t, 3>& at) {
    BinaryInner(from_a + at[0], loops.stride[0][inner], from_b + at[1], loops.stride[1][inner],
                to + at[2], loops.extent[inner], function);
  });
}

template <typename T>
void SumToAs(const Tensor& x, double scale, Tensor& y) {
  const LoopNest<2> loops = MakeLoops<2, Shape>(x.shape(), {&x.shape(), &y.shape()});
  const int inner = loops.rank - 1;
  const int64_t n = loops.extent[inner];
  const T* from = x.data_as<T>();
  T* to = y.fresh_data<T>();
  const int64_t results = y.shape().num_elements();
  std::fill_n(to, results, T(0));
  ForEachInnerLoop(loops, [&](const std::array<int64_t, 2>& at) {
    const T* __restrict row = from + at[0];
    T* __restrict sum = to + at[1];
    if (loops.stride[1][inner] == 0) {
      *sum += static_cast<T>(SumOf(row, n));
    } else {
      for (int64_t i = 0; i < n; ++i) sum[i] += row[i];
    }
  });
  if (scale == 1) return;
  for (int64_t i = 0; i < results; ++i) to[i] = static_cast<T>(to[i] * scale);
}

template <typename T>
void MaxToAs(const Tensor& x, Tensor& y) {
  const LoopNest<2> loops = MakeLoops<2, Shape>(x.shape(), {&x.shape(), &y.shape()});
  const int inner = loops.rank - 1;
  const int64_t n = loops.extent[inner];
  const T* from = x.data_as<T>();
  T* to = y.fresh_data<T>();
  std::fill_n(to, y.shape().num_elements(), -std::numeric_limits<T>::infinity());
  ForEachInnerLoop(loops, [&](const std::array<int64_t, 2>& at) {
    const T* __restrict row = from + at[0];
    T* __restrict max = to + at[1];
    if (loops.stride[1][inner] == 0) {
      T largest = *max;
      for (int64_t i = 0; i < n; ++i) largest = Larger(largest, row[i]);
      *max = largest;
    } else {
      for (int64_t i = 0; i < n; ++i) max[i] = Larger(max[i], row[i]);
    }
  });
}

// Four elements for each counter of the generator: an element is dropped where its word is below
// rate * 2^32.
template <typename T>
void DropoutAs(uint64_t key, double rate, const Tensor& x, Tensor& y) {
  const auto threshold = static_cast<uint64_t>(rate * 4294967296.0);
  const T scale = static_cast<T>(1 / (1 - rate));
  const T* from = x.data_as<T>();
  T* to = y.fresh_data<T>();
  const int64_t n = x.shape().num_elements();
  for (int64_t i = 0; i < n; i += 4) {
    const std::array<uint32_t, 4> words = Philox4x32(key, static_cast<uint64_t>(i / 4), 0);
    const int64_t lanes = std::min<int64_t>(4, n - i);
    for (int64_t lane = 0; lane < lanes; ++lane)
      to[i + lane] = words[lane] < threshold ? T(0) : from[i + lane] * scale;
  }
}

template <typename T>
double SumOfSquaresAs(const Tensor& x) {
  const T* values = x.data_as<T>();
  const int64_t n = x.shape().num_elements();
  double lanes[4] = {0, 0, 0, 0};
  for (int64_t i = 0; i < n; ++i)
    lanes[i & 3] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  return (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
}

}  // namespace

void CpuBackend::Unary(UnaryOp op, const Tensor& x, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) {
    WithUnary(op, [&](auto function) { Map<decltype(t)>(x, y, function); });
  });
}

void CpuBackend::UnaryGradient(UnaryOp op, const Tensor& kept, const Tensor& gradient,
                               Tensor& dx) const {
  OnFloating(kept.dtype(), [&](auto t) {
    WithUnaryGradient(op, [&](auto function) { Map2<decltype(t)>(kept, gradient, dx, function); });
  });
}

// Two passes: the output of the first is still in the caches.
void CpuBackend::UnaryGradientAndSums(UnaryOp op, const Tensor& kept, const Tensor& gradient,
                                      Tensor& dx, Tensor& sums) const {
  UnaryGradient(op, kept, gradient, dx);
  SumTo(dx, 1, sums);
}

void CpuBackend::Binary(BinaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const {
  OnFloating(a.dtype(), [&](auto t) {
    WithBinary(op, [&](auto function) { BinaryLoops<decltype(t)>(a, b, y, function); });
  });
}

void CpuBackend::AddThen(UnaryOp op, const Tensor& a, const Tensor& b, Tensor& y) const {
  OnFloating(a.dtype(), [&](auto t) {
    using T = decltype(t);
    WithUnaryOfOutput(
        op, [&](auto function) { BinaryLoops<T>(a, b, y, AfterSum<decltype(function)>()); });
  });
}

void CpuBackend::Broadcast(const Tensor& x, double scale, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const T factor = static_cast<T>(scale);
    BinaryLoops<T>(x, x, y, [factor](T v, T) { return v * factor; });
  });
}

void CpuBackend::SumTo(const Tensor& x, double scale, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) { SumToAs<decltype(t)>(x, scale, y); });
}

void CpuBackend::MaxTo(const Tensor& x, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) { MaxToAs<decltype(t)>(x, y); });
}

void CpuBackend::Dropout(uint64_t key, double rate, const Tensor& x, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) { DropoutAs<decltype(t)>(key, rate, x, y); });
}

absl::StatusOr<std::vector<double>> CpuBackend::SumsOfSquares(
    absl::Span<const Tensor> values) const {
  std::vector<double> sums;
  for (const Tensor& x : values) {
    sums.push_back(0);
    OnFloating(x.dtype(), [&](auto t) { sums.back() = SumOfSquaresAs<decltype(t)>(x); });
  }
  return sums;
}

}  // namespace divvy::internal
