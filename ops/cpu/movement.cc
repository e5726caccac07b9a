// Movement of elements: copies, permutations, rows by id, triangles of matrices.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/parallel.h"
#include "ops/data_errors.h"
#include "ops/loops.h"

namespace divvy::internal {
namespace {

// The loops of a permutation, in the order of the result: operand 0 is x, operand 1 is y. Axes of
// extent 1 are omitted, and axes that stay adjacent are merged.
LoopNest<2> PermutedLoops(const Shape& from, absl::Span<const int> axes, const Shape& to) {
  LoopNest<2> loops;
  for (int i = 0; i < to.rank(); ++i) {
    if (to.dim(i) == 1) continue;
    const int64_t from_stride = BroadcastStride(from, axes[i], from.rank()),
                  to_stride = BroadcastStride(to, i, to.rank());
    const int last = loops.rank - 1;
    if (last >= 0 && loops.stride[0][last] == from_stride * to.dim(i)) {
      loops.extent[last] *= to.dim(i);
    } else {
      loops.extent[loops.rank++] = to.dim(i);
    }
    loops.stride[0][loops.rank - 1] = from_stride;
    loops.stride[1][loops.rank - 1] = to_stride;
  }
  return loops;
}

// One axis of a loop nest.
struct Axis {
  int64_t extent = 1, from = 0, to = 0;
};

Axis TakeAxis(LoopNest<2>& loops, int axis) {
  const Axis taken{loops.extent[axis], loops.stride[0][axis], loops.stride[1][axis]};
  for (int i = axis; i + 1 < loops.rank; ++i) {
    loops.extent[i] = loops.extent[i + 1];
    for (auto& stride : loops.stride) stride[i] = stride[i + 1];
  }
  --loops.rank;
  return taken;
}

// Columns and rows of x that are turned at a time: both sides then read and write whole cache
// lines one after another, and what lies between is in the first-level cache. There its rows are
// kept apart by some elements, because rows a power of 2 apart would share a few of its sets.
constexpr int64_t kTile = 64, kTileStride = kTile + 16;

// to[i * kTileStride + j] = from[i + j * from_stride] for a whole tile.
template <typename T>
void TurnTile(const T* __restrict from, int64_t from_stride, T* __restrict to) {
  for (int64_t i = 0; i < kTile; ++i) {
    for (int64_t j = 0; j < kTile; ++j) to[i * kTileStride + j] = from[i + j * from_stride];
  }
}

// Four elements in a vector, which every processor has that we know.
using Four = uint32_t __attribute__((vector_size(16)));

void TurnTile(const uint32_t* __restrict from, int64_t from_stride, uint32_t* __restrict to) {
  for (int64_t j = 0; j < kTile; j += 4) {
    for (int64_t i = 0; i < kTile; i += 4) {
      Four row[4];
      for (int k = 0; k < 4; ++k)
        std::memcpy(&row[k], from + i + (j + k) * from_stride, sizeof(Four));
      const Four a = __builtin_shufflevector(row[0], row[1], 0, 4, 1, 5),
                 b = __builtin_shufflevector(row[2], row[3], 0, 4, 1, 5),
                 c = __builtin_shufflevector(row[0], row[1], 2, 6, 3, 7),
                 d = __builtin_shufflevector(row[2], row[3], 2, 6, 3, 7);
      const Four turned[4] = {
          __builtin_shufflevector(a, b, 0, 1, 4, 5), __builtin_shufflevector(a, b, 2, 3, 6, 7),
          __builtin_shufflevector(c, d, 0, 1, 4, 5), __builtin_shufflevector(c, d, 2, 3, 6, 7)};
      for (int k = 0; k < 4; ++k)
        std::memcpy(to + (i + k) * kTileStride + j, &turned[k], sizeof(Four));
    }
  }
}

// `row` is consecutive in x, `column` in y. Turns rows [begin, end).
template <typename T>
void TransposeInto(const T* from, T* to, const Axis& row, const Axis& column, int64_t begin,
                   int64_t end) {
  T tile[kTile * kTileStride];
  for (int64_t r = begin; r < end; r += kTile) {
    const int64_t rows = std::min(kTile, end - r);
    for (int64_t c = 0; c < column.extent; c += kTile) {
      const int64_t columns = std::min(kTile, column.extent - c);
      const T* const corner = from + r + c * column.from;
      if (rows < kTile || columns < kTile) {
        for (int64_t i = 0; i < rows; ++i) {
          for (int64_t j = 0; j < columns; ++j)
            to[(r + i) * row.to + c + j] = corner[i + j * column.from];
        }
        continue;
      }
      TurnTile(corner, column.from, tile);
      for (int64_t i = 0; i < kTile; ++i)
        std::memcpy(to + (r + i) * row.to + c, tile + i * kTileStride, kTile * sizeof(T));
    }
  }
}

// REQUIRES: no extent is 0.
template <typename T>
void PermuteAs(const Tensor& x, absl::Span<const int> axes, Tensor& y) {
  LoopNest<2> loops = PermutedLoops(x.shape(), axes, y.shape());
  const T* const from = static_cast<const T*>(x.data());
  T* const to = y.fresh_data<T>();
  Axis row{1, 1, 1}, column{1, 1, 1};
  if (loops.rank > 0) column = TakeAxis(loops, loops.rank - 1);
  for (int i = 0; i < loops.rank && column.from != 1; ++i) {
    if (loops.stride[0][i] == 1) row = TakeAxis(loops, i);
  }
  // Adds an innermost loop of one step, because ForEachInnerLoop leaves the innermost loop to its
  // body.
  loops.extent[loops.rank++] = 1;
  const int64_t nests = InnerLoops(loops);
  if (column.from == 1) {
    return InSlices<T>(nests, column.extent, [=, &loops](int64_t begin, int64_t end) {
      ForEachInnerLoop(loops, begin, end, [=](const std::array<int64_t, 2>& at) {
        std::memcpy(to + at[1], from + at[0], column.extent * sizeof(T));
      });
    });
  }
  // Strips of kTile rows, those of one matrix after those of another.
  const int64_t strips = (row.extent + kTile - 1) / kTile;
  InSlices<T>(nests * strips, std::min(kTile, row.extent) * column.extent,
              [=, &loops](int64_t begin, int64_t end) {
                for (int64_t i = begin; i < end; ++i) {
                  const std::array<int64_t, 2> at = OffsetsAt(loops, i / strips);
                  const int64_t first = i % strips * kTile;
                  TransposeInto(from + at[0], to + at[1], row, column, first,
                                std::min(first + kTile, row.extent));
                }
              });
}

int64_t RowBytes(const Tensor& x) { return x.shape().row_elements() * DTypeSize(x.dtype()); }

}  // namespace

void CpuBackend::CopyBlocks(Device, const void* from, int64_t from_stride, void* to,
                            int64_t to_stride, int64_t block_bytes, int64_t rows) const {
  if (block_bytes == 0) return;
  for (int64_t i = 0; i < rows; ++i) {
    std::memcpy(static_cast<char*>(to) + i * to_stride,
                static_cast<const char*>(from) + i * from_stride, block_bytes);
  }
}

void CpuBackend::Zero(Tensor& y) const {
  std::fill_n(y.fresh_data<char>(), y.size_bytes(), char{0});
}

void CpuBackend::Permute(const Tensor& x, absl::Span<const int> axes, Tensor& y) const {
  if (y.shape().num_elements() == 0) return;
  switch (DTypeSize(x.dtype())) {
    case 1: return PermuteAs<uint8_t>(x, axes, y);
    case 2: return PermuteAs<uint16_t>(x, axes, y);
    case 4: return PermuteAs<uint32_t>(x, axes, y);
    default: return PermuteAs<uint64_t>(x, axes, y);
  }
}

absl::Status CpuBackend::GatherRows(const Tensor& x, const Tensor& ids, Tensor& y) const {
  const int64_t n = ids.shape().num_elements(), rows = x.shape().dim(0), bytes = RowBytes(x);
  const int64_t* const id = ids.data_as<int64_t>();
  const int64_t* const wrong =
      std::find_if(id, id + n, [rows](int64_t at) { return at < 0 || at >= rows; });
  if (wrong != id + n)
    return absl::InvalidArgumentError(IdOutOfRange(*wrong, wrong - id, x.dtype(), x.shape()));
  if (bytes == 0) return absl::OkStatus();
  const char* const from = static_cast<const char*>(x.data());
  char* const to = y.fresh_data<char>();
  // The rows lie anywhere. Those ahead are prefetched, so that their cache misses overlap.
  constexpr int64_t kAhead = 8, kLine = 64, kFetched = 512;
  InSlices<char>(n, bytes / 4, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (i + kAhead < end) {
        const char* const ahead = from + id[i + kAhead] * bytes;
        for (int64_t at = 0; at < std::min(bytes, kFetched); at += kLine)
          __builtin_prefetch(ahead + at);
      }
      std::memcpy(to + i * bytes, from + id[i] * bytes, bytes);
    }
  });
  return absl::OkStatus();
}

void CpuBackend::ScatterAddRows(const Tensor& ids, const Tensor& rows, Tensor& y) const {
  Zero(y);
  OnFloating(y.dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t n = ids.shape().num_elements(), width = y.shape().row_elements();
    for (int64_t i = 0; i < n; ++i) {
      const T* __restrict from = rows.data_as<T>() + i * width;
      T* __restrict to = y.fresh_data<T>() + ids.data_as<int64_t>()[i] * width;
      for (int64_t k = 0; k < width; ++k) to[k] += from[k];
    }
  });
}

void CpuBackend::LowerTriangles(const Tensor& x, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t batch = x.shape().dim(0), f = x.shape().dim(1);
    T* to = y.fresh_data<T>();
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 1; i < f; ++i) to = std::copy_n(x.data_as<T>() + (b * f + i) * f, i, to);
    }
  });
}

void CpuBackend::SymmetricFromTriangles(const Tensor& y, Tensor& x) const {
  Zero(x);
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const int64_t batch = x.shape().dim(0), f = x.shape().dim(1);
    const T* from = y.data_as<T>();
    for (int64_t b = 0; b < batch; ++b) {
      T* matrix = x.fresh_data<T>() + b * f * f;
      for (int64_t i = 1; i < f; ++i) {
        for (int64_t j = 0; j < i; ++j) matrix[i * f + j] = matrix[j * f + i] = *from++;
      }
    }
  });
}

}  // namespace divvy::internal
