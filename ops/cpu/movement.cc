// Movement of elements: copies, permutations, rows by id, triangles of matrices.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/cpu/cpu_backend.h"
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

// `row` is consecutive in x, `column` in y. Works in tiles, so that each cache line of both sides
// is used completely while it is in the cache.
template <typename T>
void TransposeInto(const T* from, T* to, const Axis& row, const Axis& column) {
  constexpr int64_t kTile = 16;
  for (int64_t r = 0; r < row.extent; r += kTile) {
    for (int64_t c = 0; c < column.extent; c += kTile) {
      for (int64_t i = r; i < std::min(r + kTile, row.extent); ++i) {
        for (int64_t j = c; j < std::min(c + kTile, column.extent); ++j)
          to[i * row.to + j] = from[i + j * column.from];
      }
    }
  }
}

// REQUIRES: no extent is 0.
template <typename T>
void PermuteAs(const Tensor& x, absl::Span<const int> axes, Tensor& y) {
  LoopNest<2> loops = PermutedLoops(x.shape(), axes, y.shape());
  const T* from = static_cast<const T*>(x.data());
  T* to = y.fresh_data<T>();
  Axis row{1, 1, 1}, column{1, 1, 1};
  if (loops.rank > 0) column = TakeAxis(loops, loops.rank - 1);
  for (int i = 0; i < loops.rank && column.from != 1; ++i) {
    if (loops.stride[0][i] == 1) row = TakeAxis(loops, i);
  }
  // Adds an innermost loop of one step, because ForEachInnerLoop leaves the innermost loop to its
  // body.
  loops.extent[loops.rank++] = 1;
  ForEachInnerLoop(loops, [&](const std::array<int64_t, 2>& at) {
    if (column.from == 1) {
      std::copy_n(from + at[0], column.extent, to + at[1]);
    } else {
      TransposeInto(from + at[0], to + at[1], row, column);
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
  for (int64_t i = 0; i < n; ++i) {
    const int64_t id = ids.data_as<int64_t>()[i];
    if (id < 0 || id >= rows)
      return absl::InvalidArgumentError(IdOutOfRange(id, i, x.dtype(), x.shape()));
    if (bytes > 0)
      std::memcpy(y.fresh_data<char>() + i * bytes, static_cast<const char*>(x.data()) + id * bytes,
                  bytes);
  }
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
