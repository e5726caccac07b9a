// How work is spread over a device: by element, or a row to each group of threads that meet. The bodies are the same for nvcc and for a host compiler, which
// runs them one after the other: so they are tested where there is no GPU.
#ifndef DIVVY_OPS_CUDA_PARALLEL_H_
#define DIVVY_OPS_CUDA_PARALLEL_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

#include "base/host_device.h"
#include "ops/functions.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace divvy::cuda {

#ifdef __CUDACC__
using Stream = cudaStream_t;
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

// The threads that share a row: thread `index` of `count` takes columns index, index + count, ... All of them call Sum and Max alike, and get the same.
struct Lanes {
  int index = 0, count = 1;

  // The order of additions follows from `count` alone, so that equal inputs give equal bits.
  DIVVY_HOST_DEVICE double Sum(double own) const { return Meet(own, internal::Sum()); }
  DIVVY_HOST_DEVICE double Max(double own) const { return Meet(own, internal::Maximum()); }

  // Of the lanes before this one.
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
  template <typename Combine>
  DIVVY_HOST_DEVICE double Meet(double own, Combine combine) const {
#ifdef __CUDA_ARCH__
    __shared__ double shared[kThreads];
    shared[index] = own;
    __syncthreads();
    for (int half = kThreads / 2; half > 0; half /= 2) {
      if (index < half) shared[index] = combine(shared[index], shared[index + half]);
      __syncthreads();
    }
    const double all = shared[0];
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
__global__ void RunForEachRow(int64_t rows, Body body) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) body(row, Lanes{static_cast<int>(threadIdx.x), kThreads});
}
#endif

// Calls body(i) for each i in [0, n).
template <typename Body>
void ForEach(Stream stream, int64_t n, const Body& body) {
  if (n <= 0) return;
#ifdef __CUDACC__
  const int64_t blocks = std::min<int64_t>((n + kThreads - 1) / kThreads, 1 << 16);
  RunForEach<<<static_cast<unsigned>(blocks), kThreads, 0, stream>>>(n, body);
#else
  AddTo(stream, [=] {
    for (int64_t i = 0; i < n; ++i) body(i);
  });
#endif
}

// Calls body(row, lanes) for each row in [0, rows), with all lanes of a row.
template <typename Body>
void ForEachRow(Stream stream, int64_t rows, const Body& body) {
  if (rows <= 0) return;
#ifdef __CUDACC__
  RunForEachRow<<<static_cast<unsigned>(std::min<int64_t>(rows, 1 << 16)), kThreads, 0, stream>>>(rows, body);
#else
  AddTo(stream, [=] {
    for (int64_t row = 0; row < rows; ++row) body(row, Lanes());
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
