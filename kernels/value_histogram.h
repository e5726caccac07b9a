// How the values of a tensor are distributed, as tf.summary.histogram counts them.
#ifndef DIVVY_KERNELS_VALUE_HISTOGRAM_H_
#define DIVVY_KERNELS_VALUE_HISTOGRAM_H_

#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "absl/types/span.h"
#include "tensor/dtype.h"
#include "tensor/tensor.h"

namespace divvy {

// The number of buckets that tf.summary.histogram has by default.
inline constexpr int kHistogramBuckets = 30;

// Counts in buckets of equal width. Bucket i has the values from low + i * width up to the next
// bucket's low end; the last bucket includes `high`. If all values are equal, they are in the last
// bucket.
struct ValueHistogram {
  // The smallest and the greatest value.
  double low = 0, high = 0;
  // Empty: there is no value.
  std::vector<uint64_t> counts = {};
};

// The histogram of the finite values of `data`; a bool is 0 or 1. If there are more than `most`
// elements, only so many of them are read, at equal distances from each other. Pure; thread-safe.
// REQUIRES: data is on the CPU; buckets > 0; most > 0.
ValueHistogram HistogramOf(const Tensor& data, int buckets = kHistogramBuckets,
                           int64_t most = std::numeric_limits<int64_t>::max());

// As HistogramOf one tensor that has the elements of all `parts`. A few more than `most` elements
// may be read: one more of each part. REQUIRES: as HistogramOf, for each part.
ValueHistogram HistogramOfParts(absl::Span<const Tensor> parts, int buckets = kHistogramBuckets,
                                int64_t most = std::numeric_limits<int64_t>::max());

// The number of elements that are NaN or infinite. Pure; thread-safe. REQUIRES: as HistogramOf.
int64_t CountNotFinite(const Tensor& data);

// The element of a tensor as a double. Pure.
template <typename T>
double ElementAsDouble(T element) {
  if constexpr (std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>) {
    return element.ToFloat();
  } else {
    return static_cast<double>(element);
  }
}

}  // namespace divvy

#endif  // DIVVY_KERNELS_VALUE_HISTOGRAM_H_
