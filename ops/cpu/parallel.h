// Runs a loop in slices on several threads, each slice with the best vector instructions.
#ifndef DIVVY_OPS_CPU_PARALLEL_H_
#define DIVVY_OPS_CPU_PARALLEL_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "base/vector_level.h"

namespace divvy::internal {

// The number of threads that one call of this backend may use, the caller's among them. At first
// the cores that this process may use. Thread-safe.
int ComputeThreads();
// REQUIRES: threads >= 1.
void SetComputeThreads(int threads);

// The elements of a slice: enough to be worth a wake-up (5 to 30 us), and small enough for the
// caches near a core.
constexpr int64_t kSliceElements = 32 << 10;

// A range of slices and what computes one of them.
struct SliceLoop {
  void (*run)(const void* body, int64_t begin, int64_t end);
  const void* body;
  int64_t n;      // [0, n) is cut ...
  int64_t slice;  // ... into slices of so many; the last one may be shorter
};

// Runs every slice once and returns when all are done. The caller takes part. The other threads
// belong to the process; they sleep when there is no work, and compute with the caller's
// floating-point environment (FlushDenormals). A thread that comes too late for the last slice is
// not waited for. Blocks; thread-safe.
void RunSlices(const SliceLoop& loop, int threads);

template <typename T, typename Body>
void RunSlice(const void* body, int64_t begin, int64_t end) {
  const auto run = [=] { (*static_cast<const Body*>(body))(begin, end); };
  if constexpr (std::is_same_v<T, float>) {
    AtVectorLevel(run);
  } else {
    run();
  }
}

// Calls body(begin, end) for slices that cover [0, n) once, on several threads if there is work for
// them. One step of the range costs as much as `elements_each` elements. If `T` is float, what it
// computes with, then at CurrentVectorLevel(); else it is compiled only once, which takes a third
// of the time and space. The slices may come in any order, and at once; what each writes is its
// own. Then the result has the same bits for any number of threads.
//
//   InSlices<float>(n, 1, [=](int64_t begin, int64_t end) {
//     for (int64_t i = begin; i < end; ++i) to[i] = std::sqrt(from[i]);
//   });
template <typename T, typename Body>
void InSlices(int64_t n, int64_t elements_each, const Body& body) {
  if (n <= 0) return;
  const int64_t slice = std::max<int64_t>(1, kSliceElements / std::max<int64_t>(1, elements_each));
  const int threads = n < 2 * slice ? 1 : ComputeThreads();
  if (threads == 1) return RunSlice<T, Body>(&body, 0, n);
  RunSlices({RunSlice<T, Body>, &body, n, slice}, threads);
}

// Calls body(begin, end) for ComputeThreads() parts of [0, n), or fewer, which are about equally
// large: one for each thread. All but the last are a multiple of `unit`.
template <typename Body>
void InParts(int64_t n, int64_t unit, const Body& body) {
  const int64_t threads = ComputeThreads(), units = (n + unit - 1) / unit;
  const int64_t part = (units + threads - 1) / threads * unit;
  if (part >= n) return body(0, n);
  RunSlices({RunSlice<void, Body>, &body, n, part}, static_cast<int>(threads));
}

}  // namespace divvy::internal

#endif  // DIVVY_OPS_CPU_PARALLEL_H_
