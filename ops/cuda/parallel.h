// How work is spread over a device: by element, or a row to each group of threads that meet. The bodies are the same for nvcc and for a host compiler, which
// runs them one after the other: so they are tested where there is no GPU.
#ifndef DIVVY_OPS_CUDA_PARALLEL_H_
#define DIVVY_OPS_CUDA_PARALLEL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

#include "base/host_device.h"
#include "ops/cuda/first_error.h"
#include "ops/functions.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

// Marks a lambda that is the body of a kernel. For nvcc it is the device's alone: one that the host might call as well is kept on the host's heap, with an
// allocation for each copy that a launch makes.
#ifdef __CUDACC__
#define DIVVY_BODY __device__
#else
#define DIVVY_BODY
#endif

namespace divvy::cuda {

#ifdef __CUDACC__
// Where a device's kernels are queued, and where it is noted that one could not be.
struct Stream {
  cudaStream_t queue;
  FirstError* error;

  // After each launch.
  void NoteLaunch() const {
    if (const cudaError_t launched = cudaGetLastError(); launched != cudaSuccess && launched != cudaErrorNotReady) error->Note(cudaGetErrorString(launched));
  }
};
#else
// A queue of a device that is none: does what it is given in that order, at once or later.
class HostStream {
 public:
  virtual ~HostStream() = default;
  virtual void Add(std::function<void()> work) = 0;
};
using Stream = HostStream*;  // null: at once

template <typename Work>
void AddTo(Stream stream, Work&& work) {
  stream == nullptr ? work() : stream->Add(std::forward<Work>(work));
}
#endif

constexpr int kThreads = 256;  // of a block
constexpr int kWarp = 32;      // threads that run in step

// The threads that share a row: thread `index` of `count` takes columns index, index + count, ... All of them call Sum and Max alike, and get the same.
struct Lanes {
  int index = 0, count = 1;  // on a device: a warp's threads or a block's

  // The order of additions follows from `count` alone, so that equal inputs give equal bits.
  DIVVY_HOST_DEVICE double Sum(double own) const { return Meet(own, 0, internal::Sum()); }
  DIVVY_HOST_DEVICE double Max(double own) const { return Meet(own, -std::numeric_limits<double>::infinity(), internal::Maximum()); }

  // Of the lanes before this one. REQUIRES: the row has a block, or all of a host.
  DIVVY_HOST_DEVICE double SumBefore(double own) const {
#ifdef __CUDA_ARCH__
    __shared__ double shared[kThreads];
    shared[index] = own;
    __syncthreads();
    double sum = 0;
    for (int lane = 0; lane < index; ++lane) sum += shared[lane];
    __syncthreads();
    return sum;
#else
    return 0;
#endif
  }

 private:
#ifdef __CUDA_ARCH__
  template <typename Combine>
  __device__ static double MeetInWarp(double own, Combine combine) {
    for (int distance = kWarp / 2; distance > 0; distance /= 2) own = combine(own, __shfl_xor_sync(~0u, own, distance));
    return own;
  }
#endif

  // Warp by warp, then the warps.
  template <typename Combine>
  DIVVY_HOST_DEVICE double Meet(double own, double nothing, Combine combine) const {
#ifdef __CUDA_ARCH__
    own = MeetInWarp(own, combine);
    if (count == kWarp) return own;
    __shared__ double shared[kThreads / kWarp];
    if (index % kWarp == 0) shared[index / kWarp] = own;
    __syncthreads();
    const int lane = index % kWarp;
    const double all = MeetInWarp(lane < kThreads / kWarp ? shared[lane] : nothing, combine);
    __syncthreads();  // before anybody writes the next
    return all;
#else
    return own;
#endif
  }
};

#ifdef __CUDACC__
template <typename Body>
__global__ void RunForEach(int64_t n, Body body) {
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < n; i += int64_t{gridDim.x} * kThreads) body(i);
}

template <typename Body>
__global__ void RunForEachRow(int64_t rows, int threads_a_row, Body body) {
  const int by_block = kThreads / threads_a_row, thread = static_cast<int>(threadIdx.x);
  const Lanes lanes{thread % threads_a_row, threads_a_row};
  for (int64_t row = int64_t{blockIdx.x} * by_block + thread / threads_a_row; row < rows; row += int64_t{gridDim.x} * by_block) body(row, lanes);
}
#endif

// Calls body(i) for each i in [0, n).
template <typename Body>
void ForEach(Stream stream, int64_t n, const Body& body) {
  if (n <= 0) return;
#ifdef __CUDACC__
  const int64_t blocks = std::min<int64_t>((n + kThreads - 1) / kThreads, 1 << 16);
  RunForEach<<<static_cast<unsigned>(blocks), kThreads, 0, stream.queue>>>(n, body);
  stream.NoteLaunch();
#else
  AddTo(stream, [=] {
    for (int64_t i = 0; i < n; ++i) body(i);
  });
#endif
}

constexpr int64_t kNarrowRow = 1024;          // columns that a warp takes by itself: then its threads need not wait for others
constexpr int64_t kWideRow = kNarrowRow + 1;  // for a row that is to have a whole block

// Calls body(row, lanes) for each row in [0, rows), with all lanes of a row of this width.
template <typename Body>
void ForEachRow(Stream stream, int64_t rows, int64_t width, const Body& body) {
  if (rows <= 0) return;
#ifdef __CUDACC__
  const int threads_a_row = width <= kNarrowRow ? kWarp : kThreads, by_block = kThreads / threads_a_row;
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((rows + by_block - 1) / by_block, 1 << 16));
  RunForEachRow<<<blocks, kThreads, 0, stream.queue>>>(rows, threads_a_row, body);
  stream.NoteLaunch();
#else
  AddTo(stream, [=] {
    for (int64_t row = 0; row < rows; ++row) body(row, Lanes());
  });
#endif
}

constexpr int kColumns = 32;          // that a block of SumColumns takes: neighbours read neighbours
constexpr int kColumnLanes = 8;       // threads that share a column of few rows
constexpr int kManyColumnLanes = 32;  // and of many
constexpr int64_t kFewRows = 512;
constexpr int64_t kMostRowsOfColumn = 4096;  // that one block may add up; with more, other blocks should have a part

#ifdef __CUDACC__
// Thread (x, y) of a block takes rows y, y + lanes, ... of column x. Four of them are loaded before any is used, so that their loads are under way together.
template <int kLanes, typename Load, typename Term, typename Write>
__global__ void __launch_bounds__(kColumns* kLanes) RunSumColumns(int64_t columns, int64_t rows, Load load, Term term, Write write) {
  __shared__ double shared[kLanes][kColumns + 1];
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  for (int64_t first = int64_t{blockIdx.x} * kColumns; first < columns; first += int64_t{gridDim.x} * kColumns) {
    const int64_t column = first + x;
    double sum = 0;
    if (column < columns) {
      int64_t row = y;
      for (; row + 3 * kLanes < rows; row += 4 * kLanes) {
        const auto a = load(row, column), b = load(row + kLanes, column), c = load(row + 2 * kLanes, column), d = load(row + 3 * kLanes, column);
        sum += term(row, column, a);
        sum += term(row + kLanes, column, b);
        sum += term(row + 2 * kLanes, column, c);
        sum += term(row + 3 * kLanes, column, d);
      }
      for (; row < rows; row += kLanes) sum += term(row, column, load(row, column));
    }
    shared[y][x] = sum;
    __syncthreads();
    if (y == 0 && column < columns) {
      for (int lane = 1; lane < kLanes; ++lane) sum += shared[lane][x];
      write(column, sum);
    }
    __syncthreads();  // before anybody writes the next
  }
}
#endif

// Calls write(column, sum) for each column, once, with the sum of term(row, column, load(row, column)) over the rows, in an order that follows from their
// number alone. `load` only reads; what `term` writes is read by no `load`.
template <typename Load, typename Term, typename Write>
void SumColumns(Stream stream, int64_t columns, int64_t rows, const Load& load, const Term& term, const Write& write) {
  if (columns <= 0) return;
#ifdef __CUDACC__
  const auto blocks = static_cast<unsigned>(std::min<int64_t>((columns + kColumns - 1) / kColumns, 1 << 16));
  if (rows <= kFewRows) {
    RunSumColumns<kColumnLanes><<<blocks, dim3(kColumns, kColumnLanes), 0, stream.queue>>>(columns, rows, load, term, write);
  } else {
    RunSumColumns<kManyColumnLanes><<<blocks, dim3(kColumns, kManyColumnLanes), 0, stream.queue>>>(columns, rows, load, term, write);
  }
  stream.NoteLaunch();
#else
  AddTo(stream, [=] {
    for (int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (int64_t row = 0; row < rows; ++row) sum += term(row, column, load(row, column));
      write(column, sum);
    }
  });
#endif
}

// Adds to memory that others add to at the same time, in any order.
template <typename T>
DIVVY_HOST_DEVICE void AddAtomically(T* to, T amount) {
#ifdef __CUDA_ARCH__
  atomicAdd(to, amount);
#else
  *to += amount;
#endif
}

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_PARALLEL_H_
