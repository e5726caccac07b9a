#include "kernels/not_finite.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/vector_level.h"

namespace divvy {
namespace {

// Each block is searched only if it has such an element, so that the search ends early.
constexpr int64_t kBlock = 4096;

// 0 * x is 0 for each finite x, and NaN otherwise, which spoils a sum. With one sum, each addition
// would wait for the one before.
template <typename T>
bool AllFinite(const T* values, int64_t n) {
  static constexpr int64_t kSums = 128 / sizeof(T);
  bool all = true;
  AtVectorLevel([values, n, &all] {
    T sums[kSums] = {};
    int64_t done = 0;
    for (; done + kSums <= n; done += kSums) {
      for (int64_t i = 0; i < kSums; ++i) sums[i] += T{0} * values[done + i];
    }
    for (; done < n; ++done) sums[0] += T{0} * values[done];
    for (const T sum : sums) all = all && sum == 0;
  });
  return all;
}

template <typename T>
int64_t FirstNotFinite(const T* values, int64_t n) {
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t to = std::min(from + kBlock, n);
    if (AllFinite(values + from, to - from)) continue;
    return std::find_if_not(values + from, values + to, [](T x) { return std::isfinite(x); }) -
           values;
  }
  return -1;
}

}  // namespace

int64_t FirstNotFinite(const Tensor& tensor) {
  const int64_t n = tensor.shape().num_elements();
  if (tensor.dtype() == DType::kFloat32) return FirstNotFinite(tensor.data_as<float>(), n);
  if (tensor.dtype() == DType::kFloat64) return FirstNotFinite(tensor.data_as<double>(), n);
  return -1;
}

}  // namespace divvy
