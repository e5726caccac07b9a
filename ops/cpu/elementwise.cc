#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/philox.h"
#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/parallel.h"
#include "ops/functions.h"
#include "ops/loops.h"

namespace divvy::internal {
namespace {

template <typename T, typename Function>
void Map(const Tensor& x, Tensor& y, Function function) {
  const T* const from = x.data_as<T>();
  T* const to = y.fresh_data<T>();
  InSlices<T>(y.shape().num_elements(), 1, [=](int64_t begin, int64_t end) {
    const T* __restrict in = from;
    T* __restrict out = to;
    for (int64_t i = begin; i < end; ++i) out[i] = function(in[i]);
  });
}

template <typename T, typename Function>
void Map2(const Tensor& x, const Tensor& z, Tensor& y, Function function) {
  const T* const from_x = x.data_as<T>();
  const T* const from_z = z.data_as<T>();
  T* const to = y.fresh_data<T>();
  InSlices<T>(y.shape().num_elements(), 1, [=](int64_t begin, int64_t end) {
    const T* __restrict a = from_x;
    const T* __restrict b = from_z;
    T* __restrict out = to;
    for (int64_t i = begin; i < end; ++i) out[i] = function(a[i], b[i]);
  });
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
  const int64_t n = loops.extent[inner], a_stride = loops.stride[0][inner],
                b_stride = loops.stride[1][inner];
  const T* const from_a = a.data_as<T>();
  const T* const from_b = b.data_as<T>();
  T* const to = y.fresh_data<T>();
  // A single loop is cut itself, nested ones by runs of the innermost; in one place, because it is
  // compiled for each function, type and level.
  const bool single = inner == 0;
  InSlices<T>(single ? n : InnerLoops(loops), single ? 1 : n,
              [=, &loops](int64_t begin, int64_t end) {
                const int64_t first = single ? begin : 0, count = single ? end - begin : n;
                ForEachInnerLoop(loops, single ? 0 : begin, single ? 1 : end,
                                 [=](const std::array<int64_t, 3>& at) {
                                   BinaryInner(from_a + at[0] + first * a_stride, a_stride,
                                               from_b + at[1] + first * b_stride, b_stride,
                                               to + at[2] + first, count, function);
                                 });
              });
}

// The sum of all elements, in slices of kSliceElements for any number of threads.
template <typename T>
double SumOfAll(const T* x, int64_t n) {
  std::vector<double> sums((n + kSliceElements - 1) / kSliceElements);
  double* const to = sums.data();
  InSlices<T>(static_cast<int64_t>(sums.size()), kSliceElements, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      to[i] = SumOf(x + i * kSliceElements, std::min(kSliceElements, n - i * kSliceElements));
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Whether different runs of the innermost loop reduce into different elements of operand 1.
bool IsDisjoint(const LoopNest<2>& loops) {
  for (int axis = 0; axis < loops.rank - 1; ++axis) {
    if (loops.stride[1][axis] == 0) return false;
  }
  return true;
}

// Calls reduce(run of x, what it goes into, elements) for runs of the innermost loop: on several
// threads by runs if these are disjoint, else by columns, so that each result is reduced in the
// order of x. Where runs that are not disjoint go into one number each, on one thread.
template <typename T, typename Reduce>
void ReduceRuns(const LoopNest<2>& loops, const T* from, T* to, const Reduce& reduce) {
  const int64_t runs = InnerLoops(loops), n = loops.extent[loops.rank - 1];
  const bool to_one = loops.stride[1][loops.rank - 1] == 0;
  const auto rows = [=, &loops](int64_t begin, int64_t end) {
    ForEachInnerLoop(loops, begin, end, [=](const std::array<int64_t, 2>& at) {
      reduce(from + at[0], to + at[1], n);
    });
  };
  if (IsDisjoint(loops)) return InSlices<T>(runs, n, rows);
  if (to_one) return AtVectorLevel([&] { rows(0, runs); });
  // At least so many columns that whole cache lines are read, one after another.
  InSlices<T>(n, std::min(runs, kSliceElements / 256), [=, &loops](int64_t begin, int64_t end) {
    ForEachInnerLoop(loops, [=](const std::array<int64_t, 2>& at) {
      reduce(from + at[0] + begin, to + at[1] + begin, end - begin);
    });
  });
}

template <typename T>
void SumToAs(const Tensor& x, double scale, Tensor& y) {
  const LoopNest<2> loops = MakeLoops<2, Shape>(x.shape(), {&x.shape(), &y.shape()});
  const bool to_one = loops.stride[1][loops.rank - 1] == 0;
  const T* const from = x.data_as<T>();
  T* const to = y.fresh_data<T>();
  const int64_t results = y.shape().num_elements();
  std::fill_n(to, results, T(0));
  if (to_one && loops.rank == 1) {
    *to = static_cast<T>(SumOfAll(from, loops.extent[0]));
  } else if (to_one) {
    ReduceRuns(loops, from, to,
               [](const T* run, T* sum, int64_t n) { *sum += static_cast<T>(SumOf(run, n)); });
  } else {
    ReduceRuns(loops, from, to, [](const T* __restrict run, T* __restrict sum, int64_t n) {
      for (int64_t i = 0; i < n; ++i) sum[i] += run[i];
    });
  }
  if (scale == 1) return;
  for (int64_t i = 0; i < results; ++i) to[i] = static_cast<T>(to[i] * scale);
}

template <typename T>
void MaxToAs(const Tensor& x, Tensor& y) {
  const LoopNest<2> loops = MakeLoops<2, Shape>(x.shape(), {&x.shape(), &y.shape()});
  const T* const from = x.data_as<T>();
  T* const to = y.fresh_data<T>();
  std::fill_n(to, y.shape().num_elements(), -std::numeric_limits<T>::infinity());
  if (loops.stride[1][loops.rank - 1] == 0) {
    ReduceRuns(loops, from, to,
               [](const T* run, T* max, int64_t n) { *max = Larger(*max, LargestOf(run, n)); });
  } else {
    ReduceRuns(loops, from, to, [](const T* __restrict run, T* __restrict max, int64_t n) {
      for (int64_t i = 0; i < n; ++i) max[i] = Larger(max[i], run[i]);
    });
  }
}

// Elements that the generator's words are made for at a time, four for each counter.
constexpr int kDropoutBlock = 256;

// The words of Philox(key, first + i, 0) for i in [0, kDropoutBlock / 4), one after another. The
// rounds of base/philox.h, each for all counters at once: this becomes vector code.
inline void DropoutWords(uint64_t key, uint64_t first, uint32_t* __restrict words) {
  constexpr int kCounters = kDropoutBlock / 4;
  uint32_t c0[kCounters], c1[kCounters], c2[kCounters], c3[kCounters];
  for (int i = 0; i < kCounters; ++i) {
    const uint64_t counter = first + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(counter);
    c1[i] = static_cast<uint32_t>(counter >> 32);
    c2[i] = c3[i] = 0;
  }
  PhiloxKey keys(key);
  for (int round = 0; round < kPhiloxRounds; ++round, keys.Next()) {
    const uint32_t k0 = keys.low, k1 = keys.high;
    for (int i = 0; i < kCounters; ++i) PhiloxRound(k0, k1, c0[i], c1[i], c2[i], c3[i]);
  }
  for (int i = 0; i < kCounters; ++i) {
    words[4 * i] = c0[i];
    words[4 * i + 1] = c1[i];
    words[4 * i + 2] = c2[i];
    words[4 * i + 3] = c3[i];
  }
}

// An element is dropped where its word is below rate * 2^32.
template <typename T>
void DropoutAs(uint64_t key, double rate, const Tensor& x, Tensor& y) {
  const auto threshold = static_cast<uint32_t>(rate * 4294967296.0);
  const T scale = static_cast<T>(1 / (1 - rate));
  const T* const from = x.data_as<T>();
  T* const to = y.fresh_data<T>();
  const int64_t n = x.shape().num_elements(), blocks = (n + kDropoutBlock - 1) / kDropoutBlock;
  InSlices<T>(blocks, kDropoutBlock, [=](int64_t begin, int64_t end) {
    uint32_t words[kDropoutBlock];
    for (int64_t block = begin; block < end; ++block) {
      DropoutWords(key, static_cast<uint64_t>(block * (kDropoutBlock / 4)), words);
      const T* __restrict in = from + block * kDropoutBlock;
      T* __restrict out = to + block * kDropoutBlock;
      const int64_t count = std::min<int64_t>(kDropoutBlock, n - block * kDropoutBlock);
      for (int64_t i = 0; i < count; ++i) {
        const T kept = in[i] * scale;
        out[i] = words[i] < threshold ? T(0) : kept;
      }
    }
  });
}

template <typename T>
double SumOfSquaresAs(const Tensor& x) {
  const T* const values = x.data_as<T>();
  const int64_t n = x.shape().num_elements();
  double sum = 0;
  AtVectorLevel([&] { sum = Dot(values, values, n); });
  return sum;
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
