#include <limits>

#include "ops/cuda/kernel_math.h"
#include "ops/loops.h"

namespace divvy::cuda {
namespace {

using internal::LoopNest;
using internal::OffsetsAt;

constexpr int64_t kChunk = 64;  // rows that one thread adds up by itself

// The loops over x in two groups: those that lead to another element of y, and those that are
// summed.
struct Reduction {
  LoopNest<2> kept;     // x, y
  LoopNest<1> reduced;  // x
  int64_t results = 1, width = 1;
  bool consecutive = true;  // the summed elements are adjacent
};

void Append(int64_t extent, int64_t x_stride, LoopNest<1>& loops) {
  loops.extent[loops.rank] = extent;
  loops.stride[0][loops.rank++] = x_stride;
}

Reduction MakeReduction(const Array& x, const Array& y) {
  const auto loops = internal::MakeLoops<2, Array>(x, {&x, &y});
  Reduction reduction;
  for (int axis = 0; axis < loops.rank; ++axis) {
    const int64_t extent = loops.extent[axis];
    if (loops.stride[1][axis] == 0) {
      Append(extent, loops.stride[0][axis], reduction.reduced);
      reduction.width *= extent;
      reduction.consecutive = loops.stride[0][axis] == 1;
    } else {
      LoopNest<2>& kept = reduction.kept;
      kept.extent[kept.rank] = extent;
      for (int operand = 0; operand < 2; ++operand)
        kept.stride[operand][kept.rank] = loops.stride[operand][axis];
      ++kept.rank;
      reduction.results *= extent;
    }
  }
  return reduction;
}

// One row of lanes for each result and part of the sum.
template <typename T>
void SumRows(Stream stream, const Reduction& reduction, const T* from, int64_t parts,
             double* partial) {
  ForEachRow(stream, reduction.results * parts, reduction.width / parts,
             [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
               const auto [part, result] = internal::Divide(row, reduction.results);
               const int64_t base = OffsetsAt(reduction.kept, result)[0];
               double sum = 0;
               for (int64_t i = part * lanes.count + lanes.index; i < reduction.width;
                    i += parts * lanes.count) {
                 sum += from[base + OffsetsAt(reduction.reduced, i)[0]];
               }
               sum = lanes.Sum(sum);
               if (lanes.index == 0) partial[row] = sum;
             });
}

// One thread for each result and chunk; adjacent threads read adjacent elements.
template <typename T>
void SumChunks(Stream stream, const Reduction& reduction, const T* from, int64_t chunks,
               double* partial) {
  ForEach(stream, reduction.results * chunks, [=] DIVVY_BODY(int64_t i) {
    const auto [chunk, result] = internal::Divide(i, reduction.results);
    const int64_t base = OffsetsAt(reduction.kept, result)[0];
    const int64_t end =
        chunk * kChunk + kChunk < reduction.width ? chunk * kChunk + kChunk : reduction.width;
    double sum = 0;
    for (int64_t j = chunk * kChunk; j < end; ++j)
      sum += from[base + OffsetsAt(reduction.reduced, j)[0]];
    partial[i] = sum;
  });
}

template <typename T>
void AddChunks(Stream stream, const Reduction& reduction, const double* partial, int64_t chunks,
               double scale, T* to) {
  ForEach(stream, reduction.results, [=] DIVVY_BODY(int64_t result) {
    double sum = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk)
      sum += partial[chunk * reduction.results + result];
    to[OffsetsAt(reduction.kept, result)[1]] = static_cast<T>(sum * scale);
  });
}

// Whether x is summed over rows of y's elements, as for the gradient of a bias.
bool IsColumns(const Reduction& reduction) {
  return reduction.kept.rank == 1 && reduction.kept.stride[0][0] == 1 &&
         reduction.kept.stride[1][0] == 1 && reduction.reduced.rank == 1 &&
         reduction.width <= kMostRowsOfColumn;
}

template <typename T>
void SumColumnsOf(Stream stream, const Reduction& reduction, const T* from, double scale, T* to) {
  const int64_t stride = reduction.reduced.stride[0][0];
  SumColumns(
      stream, reduction.results, reduction.width,
      [=] DIVVY_BODY(int64_t row, int64_t column) { return from[row * stride + column]; },
      [=] DIVVY_BODY(int64_t, int64_t, T loaded) { return static_cast<double>(loaded); },
      [=] DIVVY_BODY(int64_t column, double sum) { to[column] = static_cast<T>(sum * scale); });
}

// Computes each sum with the lanes of one row.
template <typename T>
void SumRowsOf(Stream stream, const Reduction& reduction, const T* from, double scale, T* to) {
  ForEachRow(stream, reduction.results, reduction.width,
             [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
               const auto at = OffsetsAt(reduction.kept, row);
               double sum = 0;
               for (int64_t i = lanes.index; i < reduction.width; i += lanes.count)
                 sum += from[at[0] + OffsetsAt(reduction.reduced, i)[0]];
               sum = lanes.Sum(sum);
               if (lanes.index == 0) to[at[1]] = static_cast<T>(sum * scale);
             });
}

// Splits long sums, so that even a few of them use the whole device.
int64_t PartsOf(const Reduction& reduction) {
  return std::clamp<int64_t>(reduction.width / (16 * kThreads), 1,
                             std::max<int64_t>(1, 1024 / std::max<int64_t>(1, reduction.results)));
}

template <typename T>
void MaxRows(Stream stream, const Reduction& reduction, const T* from, T* to) {
  ForEachRow(stream, reduction.results, reduction.width,
             [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
               const auto at = OffsetsAt(reduction.kept, row);
               double max = -std::numeric_limits<double>::infinity();
               for (int64_t i = lanes.index; i < reduction.width; i += lanes.count) {
                 max = internal::Larger(
                     max, static_cast<double>(from[at[0] + OffsetsAt(reduction.reduced, i)[0]]));
               }
               max = lanes.Max(max);
               if (lanes.index == 0) to[at[1]] = static_cast<T>(max);
             });
}

template <typename T>
void SquaresOfParts(Stream stream, const T* x, int64_t n, int64_t parts, double* partial) {
  ForEachRow(stream, parts, kWideRow, [=] DIVVY_BODY(int64_t part, const Lanes& lanes) {
    double sum = 0;
    for (int64_t i = part * lanes.count + lanes.index; i < n; i += parts * lanes.count)
      sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sum = lanes.Sum(sum);
    if (lanes.index == 0) partial[part] = sum;
  });
}

void AddParts(Stream stream, const double* partial, int64_t parts, double* total) {
  ForEachRow(stream, 1, kWideRow, [=] DIVVY_BODY(int64_t, const Lanes& lanes) {
    double sum = 0;
    for (int64_t i = lanes.index; i < parts; i += lanes.count) sum += partial[i];
    sum = lanes.Sum(sum);
    if (lanes.index == 0) *total = sum;
  });
}

}  // namespace

void KernelMath::SumTo(int device, const Array& x, double scale, const Array& y) {
  const Stream stream = Use(device);
  const Reduction reduction = MakeReduction(x, y);
  const bool is_short = reduction.consecutive && PartsOf(reduction) == 1;
  if (is_short || IsColumns(reduction)) {
    return WithFloating(y.element, [&](auto t) {
      using T = decltype(t);
      is_short ? SumRowsOf(stream, reduction, x.as<const T>(), scale, y.as<T>())
               : SumColumnsOf(stream, reduction, x.as<const T>(), scale, y.as<T>());
    });
  }
  const int64_t chunks =
      reduction.consecutive ? PartsOf(reduction) : (reduction.width + kChunk - 1) / kChunk;
  const Scratch partial(*this, device, reduction.results * chunks * sizeof(double));
  if (!partial.is_there()) return;
  WithFloating(y.element, [&](auto t) {
    using T = decltype(t);
    if (reduction.consecutive) {
      SumRows(stream, reduction, x.as<const T>(), chunks, partial.as<double>());
    } else {
      SumChunks(stream, reduction, x.as<const T>(), chunks, partial.as<double>());
    }
    AddChunks(stream, reduction, partial.as<double>(), chunks, scale, y.as<T>());
  });
}

void KernelMath::MaxTo(int device, const Array& x, const Array& y) {
  const Stream stream = Use(device);
  WithFloating(y.element, [&](auto t) {
    MaxRows(stream, MakeReduction(x, y), x.as<const decltype(t)>(), y.as<decltype(t)>());
  });
}

void KernelMath::SumOfSquares(int device, const Array& x, double* sum) {
  const Stream stream = Use(device);
  const int64_t parts = std::clamp<int64_t>(x.size() / (16 * kThreads), 1, 1024);
  const Scratch partial(*this, device, parts * sizeof(double));
  if (!partial.is_there()) return;
  WithFloating(x.element, [&](auto t) {
    SquaresOfParts(stream, x.as<const decltype(t)>(), x.size(), parts, partial.as<double>());
  });
  AddParts(stream, partial.as<double>(), parts, sum);
}

}  // namespace divvy::cuda
