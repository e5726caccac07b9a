// Distributes work over a device: by element, or by row, where a group of cooperating threads takes
// each row. The kernel bodies are the same for nvcc and for a host compiler, so they can be tested
// without a GPU: either one thread runs everything in order, or a HostBlock emulates the threads of
// a block with threads of the host.
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

// Marks a lambda that is the body of a kernel. For nvcc it runs on the device only: a lambda that
// the host may call too is kept on the host's heap, with an allocation for each copy that a launch
// makes.
#ifdef __CUDACC__
#define DIVVY_BODY __device__
#else
#define DIVVY_BODY
#endif

namespace divvy::cuda {

#ifdef __CUDACC__
// The stream of a device's kernels, and the place where a failed launch is recorded.
struct Stream {
  cudaStream_t queue;
  FirstError* error;

  // Call it after each launch.
  void NoteLaunch() const {
    if (const cudaError_t launched = cudaGetLastError();
        launched != cudaSuccess && launched != cudaErrorNotReady)
      error->Note(cudaGetErrorString(launched));
  }
};
#else
// Emulates the threads of a block on the host. `place` names a place in a kernel where its threads
// synchronize; it is a literal.
class HostBlock {
 public:
  virtual ~HostBlock() = default;
  // Calls work(thread) for each thread in [0, threads), and returns when all calls have returned.
  // One call at a time.
  virtual void Run(int threads, const std::function<void(int)>& work) = 0;
  // __syncthreads() of a GPU: returns when all threads of the block have reached this place.
  virtual void Meet(int thread, const char* place) = 0;
  // __shfl_xor_sync() of a GPU: returns the `own` of the thread of the same warp whose number
  // differs in the bit `distance`.
  virtual double Exchange(int thread, double own, int distance) = 0;
  // __shared__ memory of a GPU: `count` numbers that all threads of the block see. Every call with
  // the same place returns the same memory.
  virtual double* Shared(const char* place, int count) = 0;
};

// The queue of an emulated device: runs what it is given in that order, at once or later.
class HostStream {
 public:
  virtual ~HostStream() = default;
  virtual void Add(std::function<void()> work) = 0;
  // Emulates the blocks of kernels. Null: one thread runs everything.
  virtual HostBlock* block() { return nullptr; }
};
using Stream = HostStream*;  // null: at once

template <typename Work>
void AddTo(Stream stream, Work&& work) {
  stream == nullptr ? work() : stream->Add(std::forward<Work>(work));
}
#endif

constexpr int kThreads = 256;  // of a block
constexpr int kWarp = 32;      // threads that run in lockstep

// Declares memory for `count` numbers that the threads of a block share.
#ifdef __CUDA_ARCH__
#define DIVVY_SHARED(name, thread, place, count) __shared__ double name[count]
#else
#define DIVVY_SHARED(name, thread, place, count) double* const name = (thread).Shared(place, count)
#endif

// One thread of a block of a kernel, and its operations together with the other threads. All
// threads must make the same calls of these methods.
struct BlockThread {
#ifdef __CUDACC__
  __device__ int index() const { return static_cast<int>(threadIdx.x); }
  __device__ int64_t block() const { return blockIdx.x; }
  __device__ int64_t blocks() const { return gridDim.x; }
  __host__ __device__ void Meet(const char*) const {
#ifdef __CUDA_ARCH__
    __syncthreads();
#endif
  }
  __host__ __device__ double Exchange(double own, int distance) const {
#ifdef __CUDA_ARCH__
    return __shfl_xor_sync(~0u, own, distance);
#else
    return own;
#endif
  }
  // Never called: the host only launches kernels.
  __host__ double* Shared(const char*, int) const { return nullptr; }
#else
  HostBlock* host = nullptr;
  int own_index = 0;
  int64_t own_block = 0, num_blocks = 1;

  int index() const { return own_index; }
  int64_t block() const { return own_block; }
  int64_t blocks() const { return num_blocks; }
  void Meet(const char* place) const { host->Meet(own_index, place); }
  double Exchange(double own, int distance) const {
    return host->Exchange(own_index, own, distance);
  }
  double* Shared(const char* place, int count) const { return host->Shared(place, count); }
#endif
};

#ifndef __CUDACC__
// Runs a kernel of `parts` parts as two blocks, one after the other; a block takes `by_block` parts
// at a time. So each block meets parts that are not its own.
template <typename Kernel>
void RunBlocks(HostBlock& host, int64_t parts, int64_t by_block, int threads,
               const Kernel& kernel) {
  const int64_t blocks = parts > by_block ? 2 : 1;
  for (int64_t block = 0; block < blocks; ++block) {
    host.Run(threads, [&](int index) { kernel(BlockThread{&host, index, block, blocks}); });
  }
}
#endif

// The threads that share a row: thread `index` of `count` takes columns index, index + count, ...
// All of them make the same calls of Sum and Max, and get the same results.
struct Lanes {
  int index = 0, count = 1;  // on a device: a warp's threads or a block's
  BlockThread thread = {};

  // The order of additions depends only on `count`, so equal inputs give equal bits.
  DIVVY_HOST_DEVICE double Sum(double own) const { return Meet(own, 0, internal::Sum()); }
  DIVVY_HOST_DEVICE double Max(double own) const {
    return Meet(own, -std::numeric_limits<double>::infinity(), internal::Maximum());
  }

  // The sum over the lanes before this one. REQUIRES: the row has a whole block, or all threads of
  // a host.
  DIVVY_HOST_DEVICE double SumBefore(double own) const {
    if (count == 1) return 0;
    DIVVY_SHARED(shared, thread, "SumBefore", kThreads);
    shared[index] = own;
    thread.Meet("SumBefore, all have written");
    double sum = 0;
    for (int lane = 0; lane < index; ++lane) sum += shared[lane];
    thread.Meet("SumBefore, all have read");
    return sum;
  }

 private:
  template <typename Combine>
  DIVVY_HOST_DEVICE double MeetInWarp(double own, Combine combine) const {
    for (int distance = kWarp / 2; distance > 0; distance /= 2)
      own = combine(own, thread.Exchange(own, distance));
    return own;
  }

  // First within each warp, then across the warps.
  template <typename Combine>
  DIVVY_HOST_DEVICE double Meet(double own, double nothing, Combine combine) const {
    if (count == 1) return own;
    own = MeetInWarp(own, combine);
    if (count == kWarp) return own;
    DIVVY_SHARED(shared, thread, "Sum or Max", kThreads / kWarp);
    if (index % kWarp == 0) shared[index / kWarp] = own;
    thread.Meet("Sum or Max, all have written");
    const int lane = index % kWarp;
    const double all = MeetInWarp(lane < kThreads / kWarp ? shared[lane] : nothing, combine);
    thread.Meet("Sum or Max, all have read");  // before anybody writes the next
    return all;
  }
};

// ---- the work of one thread of a block, for each kind of kernel ----

template <typename Body>
DIVVY_BODY void TakeElements(const BlockThread& thread, int64_t n, const Body& body) {
  for (int64_t i = thread.block() * kThreads + thread.index(); i < n;
       i += thread.blocks() * kThreads)
    body(i);
}

template <typename Body>
DIVVY_BODY void TakeRows(const BlockThread& thread, int64_t rows, int threads_a_row,
                         const Body& body) {
  const int by_block = kThreads / threads_a_row;
  const Lanes lanes{thread.index() % threads_a_row, threads_a_row, thread};
  for (int64_t row = thread.block() * by_block + thread.index() / threads_a_row; row < rows;
       row += thread.blocks() * by_block)
    body(row, lanes);
}

#ifdef __CUDACC__
template <typename Body>
__global__ void RunForEach(int64_t n, Body body) {
  TakeElements(BlockThread(), n, body);
}

template <typename Body>
__global__ void RunForEachRow(int64_t rows, int threads_a_row, Body body) {
  TakeRows(BlockThread(), rows, threads_a_row, body);
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
  HostBlock* const host = stream == nullptr ? nullptr : stream->block();
  AddTo(stream, [=] {
    if (host != nullptr) {
      // The other threads of a GPU's block would have nothing to do, and no thread waits for them.
      const int threads = static_cast<int>(std::min<int64_t>(n, kThreads));
      return RunBlocks(*host, n, kThreads, threads,
                       [&](const BlockThread& thread) { TakeElements(thread, n, body); });
    }
    for (int64_t i = 0; i < n; ++i) body(i);
  });
#endif
}

// The most columns that a warp takes by itself; its threads then need not wait for other warps.
constexpr int64_t kNarrowRow = 1024;
// Makes a row have a whole block.
constexpr int64_t kWideRow = kNarrowRow + 1;

// Calls body(row, lanes) for each row in [0, rows), on all lanes that share a row of this width.
template <typename Body>
void ForEachRow(Stream stream, int64_t rows, int64_t width, const Body& body) {
  if (rows <= 0) return;
  const int threads_a_row = width <= kNarrowRow ? kWarp : kThreads,
            by_block = kThreads / threads_a_row;
#ifdef __CUDACC__
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>((rows + by_block - 1) / by_block, 1 << 16));
  RunForEachRow<<<blocks, kThreads, 0, stream.queue>>>(rows, threads_a_row, body);
  stream.NoteLaunch();
#else
  HostBlock* const host = stream == nullptr ? nullptr : stream->block();
  AddTo(stream, [=] {
    if (host != nullptr) {
      // As in ForEach: the threads of different rows never synchronize.
      const int threads = threads_a_row * static_cast<int>(std::min<int64_t>(rows, by_block));
      return RunBlocks(*host, rows, by_block, threads, [&](const BlockThread& thread) {
        TakeRows(thread, rows, threads_a_row, body);
      });
    }
    for (int64_t row = 0; row < rows; ++row) body(row, Lanes());
  });
#endif
}

// The columns that a block of SumColumns takes: adjacent threads read adjacent columns.
constexpr int kColumns = 32;
// The threads that share a column of few rows.
constexpr int kColumnLanes = 8;
// The threads that share a column of many rows.
constexpr int kManyColumnLanes = 32;
constexpr int64_t kFewRows = 512;
// The most rows that one block should add up; with more, other blocks should share the work.
constexpr int64_t kMostRowsOfColumn = 4096;

// Thread (x, y) of a block takes rows y, y + lanes, ... of column x. It loads four of them before
// it uses any, so that the loads overlap.
template <int kLanes, typename Load, typename Term, typename Write>
DIVVY_BODY void TakeColumns(const BlockThread& thread, int64_t columns, int64_t rows,
                            const Load& load, const Term& term, const Write& write) {
  // Places the lanes of a column in different banks.
  constexpr int kStride = kColumns + 1;
  DIVVY_SHARED(shared, thread, "SumColumns", kLanes * kStride);
  const int x = thread.index() % kColumns, y = thread.index() / kColumns;
  for (int64_t first = thread.block() * kColumns; first < columns;
       first += thread.blocks() * kColumns) {
    const int64_t column = first + x;
    double sum = 0;
    if (column < columns) {
      int64_t row = y;
      for (; row + 3 * kLanes < rows; row += 4 * kLanes) {
        const auto a = load(row, column), b = load(row + kLanes, column),
                   c = load(row + 2 * kLanes, column), d = load(row + 3 * kLanes, column);
        sum += term(row, column, a);
        sum += term(row + kLanes, column, b);
        sum += term(row + 2 * kLanes, column, c);
        sum += term(row + 3 * kLanes, column, d);
      }
      for (; row < rows; row += kLanes) sum += term(row, column, load(row, column));
    }
    shared[y * kStride + x] = sum;
    thread.Meet("SumColumns, all have written");
    if (y == 0 && column < columns) {
      for (int lane = 1; lane < kLanes; ++lane) sum += shared[lane * kStride + x];
      write(column, sum);
    }
    thread.Meet("SumColumns, all have read");  // before anybody writes the next
  }
}

#ifdef __CUDACC__
template <int kLanes, typename Load, typename Term, typename Write>
__global__ void __launch_bounds__(kColumns* kLanes)
    RunSumColumns(int64_t columns, int64_t rows, Load load, Term term, Write write) {
  TakeColumns<kLanes>(BlockThread(), columns, rows, load, term, write);
}
#endif

// Calls write(column, sum) once for each column, with the sum of term(row, column, load(row,
// column)) over the rows. The order of additions depends only on the number of rows. `load` only
// reads, and must not read anything that `term` writes.
template <typename Load, typename Term, typename Write>
void SumColumns(Stream stream, int64_t columns, int64_t rows, const Load& load, const Term& term,
                const Write& write) {
  if (columns <= 0) return;
#ifdef __CUDACC__
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>((columns + kColumns - 1) / kColumns, 1 << 16));
  if (rows <= kFewRows) {
    RunSumColumns<kColumnLanes>
        <<<blocks, kColumns * kColumnLanes, 0, stream.queue>>>(columns, rows, load, term, write);
  } else {
    RunSumColumns<kManyColumnLanes><<<blocks, kColumns * kManyColumnLanes, 0, stream.queue>>>(
        columns, rows, load, term, write);
  }
  stream.NoteLaunch();
#else
  HostBlock* const host = stream == nullptr ? nullptr : stream->block();
  AddTo(stream, [=] {
    if (host != nullptr) {
      const bool few = rows <= kFewRows;
      return RunBlocks(*host, columns, kColumns, kColumns * (few ? kColumnLanes : kManyColumnLanes),
                       [&](const BlockThread& thread) {
                         few ? TakeColumns<kColumnLanes>(thread, columns, rows, load, term, write)
                             : TakeColumns<kManyColumnLanes>(thread, columns, rows, load, term,
                                                             write);
                       });
    }
    for (int64_t column = 0; column < columns; ++column) {
      double sum = 0;
      for (int64_t row = 0; row < rows; ++row) sum += term(row, column, load(row, column));
      write(column, sum);
    }
  });
#endif
}

// Adds to memory to which other threads add concurrently; the order is unspecified.
template <typename T>
DIVVY_HOST_DEVICE void AddAtomically(T* to, T amount) {
#ifdef __CUDA_ARCH__
  atomicAdd(to, amount);
#elif !defined(__CUDACC__)
  T seen, sum;
  __atomic_load(to, &seen, __ATOMIC_RELAXED);
  do {
    sum = seen + amount;
  } while (!__atomic_compare_exchange(to, &seen, &sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
#endif
}

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_PARALLEL_H_
