// Iterates over tensors of different but broadcastable shapes together.
#ifndef DIVVY_OPS_LOOPS_H_
#define DIVVY_OPS_LOOPS_H_

#include <array>
#include <cstdint>

#include "base/host_device.h"

namespace divvy::internal {

constexpr int kMaxLoops = 8;

// Nested loops over the elements of a shape, with the stride of each of N operands in each loop (0
// where it is stretched). Adjacent loops are merged where possible: operands of equal shape give a
// single loop, a matrix and a row give two. In the innermost loop every stride is 0 or 1.
template <size_t N>
struct LoopNest {
  int rank = 0;  // at least 1
  std::array<int64_t, kMaxLoops> extent{};
  std::array<std::array<int64_t, kMaxLoops>, N> stride{};
};

// The stride of an operand along `axis` of a shape of rank `full_rank`; the shapes are aligned at
// the right. 0 where the operand is stretched.
template <typename Shape>
int64_t BroadcastStride(const Shape& operand, int axis, int full_rank) {
  const int own = axis - (full_rank - operand.rank());
  if (own < 0 || operand.dim(own) == 1) return 0;
  int64_t stride = 1;
  for (int i = own + 1; i < operand.rank(); ++i) stride *= operand.dim(i);
  return stride;
}

// The loops over `full` for these operands. REQUIRES: each operand's shape broadcasts to `full`. A
// Shape has rank() and dim(axis), as Shape of tensor/ does.
template <size_t N, typename Shape>
LoopNest<N> MakeLoops(const Shape& full, const std::array<const Shape*, N>& operands) {
  LoopNest<N> reversed;  // innermost first, while it grows
  int& rank = reversed.rank;
  for (int axis = full.rank() - 1; axis >= 0; --axis) {
    if (full.dim(axis) == 1) continue;
    std::array<int64_t, N> strides;
    bool merges = rank > 0;
    for (size_t i = 0; i < N; ++i) {
      strides[i] = BroadcastStride(*operands[i], axis, full.rank());
      if (merges && strides[i] != reversed.stride[i][rank - 1] * reversed.extent[rank - 1])
        merges = false;
    }
    if (merges) {
      reversed.extent[rank - 1] *= full.dim(axis);
      continue;
    }
    reversed.extent[rank] = full.dim(axis);
    for (size_t i = 0; i < N; ++i) reversed.stride[i][rank] = strides[i];
    ++rank;
  }
  if (rank == 0) {  // a single element
    reversed.extent[0] = 1;
    rank = 1;
  }
  LoopNest<N> loops;
  loops.rank = rank;
  for (int axis = 0; axis < rank; ++axis) {
    loops.extent[axis] = reversed.extent[rank - 1 - axis];
    for (size_t i = 0; i < N; ++i) loops.stride[i][axis] = reversed.stride[i][rank - 1 - axis];
  }
  return loops;
}

struct Division {
  int64_t whole, rest;
};
// Divides with 32 bits where possible: on a GPU a 64-bit division takes a hundred instructions, a
// 32-bit division twenty. REQUIRES: 0 <= value, 0 < by.
DIVVY_HOST_DEVICE inline Division Divide(int64_t value, int64_t by) {
  if (value < by) return {0, value};
  if (value > UINT32_MAX) return {value / by, value % by};
  const auto narrow = static_cast<uint32_t>(value), narrow_by = static_cast<uint32_t>(by);
  return {narrow / narrow_by, narrow % narrow_by};
}

// The offset of each operand at step i of all loops together, outermost loop first.
template <size_t N>
DIVVY_HOST_DEVICE std::array<int64_t, N> OffsetsAt(const LoopNest<N>& loops, int64_t i) {
  std::array<int64_t, N> offset{};
  for (int axis = loops.rank - 1; axis >= 0; --axis) {
    const Division at = Divide(i, loops.extent[axis]);
    for (size_t operand = 0; operand < N; ++operand)
      offset[operand] += at.rest * loops.stride[operand][axis];
    i = at.whole;
  }
  return offset;
}

// How often the innermost loop runs.
template <size_t N>
int64_t InnerLoops(const LoopNest<N>& loops) {
  if (loops.extent[loops.rank - 1] == 0) return 0;
  int64_t count = 1;
  for (int axis = 0; axis < loops.rank - 1; ++axis) count *= loops.extent[axis];
  return count;
}

// Calls body(offsets of the operands) at the start of runs [begin, end) of the innermost loop, in
// order. REQUIRES: 0 <= begin, end <= InnerLoops(loops).
template <size_t N, typename Body>
void ForEachInnerLoop(const LoopNest<N>& loops, int64_t begin, int64_t end, Body&& body) {
  if (begin >= end) return;
  std::array<int64_t, kMaxLoops> index{};
  std::array<int64_t, N> offset{};
  const int outer = loops.rank - 1;
  int64_t rest = begin;
  for (int axis = outer - 1; axis >= 0; --axis) {
    index[axis] = rest % loops.extent[axis];
    rest /= loops.extent[axis];
    for (size_t i = 0; i < N; ++i) offset[i] += index[axis] * loops.stride[i][axis];
  }
  for (int64_t at = begin;;) {
    body(offset);
    if (++at == end) return;
    for (int axis = outer - 1; axis >= 0; --axis) {
      const bool wraps = ++index[axis] == loops.extent[axis];
      for (size_t i = 0; i < N; ++i)
        offset[i] +=
            wraps ? -loops.stride[i][axis] * (loops.extent[axis] - 1) : loops.stride[i][axis];
      if (!wraps) break;
      index[axis] = 0;
    }
  }
}

// The same for all runs.
template <size_t N, typename Body>
void ForEachInnerLoop(const LoopNest<N>& loops, Body&& body) {
  ForEachInnerLoop(loops, 0, InnerLoops(loops), body);
}

}  // namespace divvy::internal

#endif  // DIVVY_OPS_LOOPS_H_
