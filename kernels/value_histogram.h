// How the values of a tensor are distributed, as tf.summary.histogram counts them.
#ifndef DIVVY_KERNELS_VALUE_HISTOGRAM_H_
#define DIVVY_KERNELS_VALUE_HISTOGRAM_H_

#include <cstdint>
#include <limits>
#include <vector>

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

// The number of elements that are NaN or infinite. Pure; thread-safe. REQUIRES: as HistogramOf.
int64_t CountNotFinite(const Tensor& data);

}  // namespace divvy

#endif  // DIVVY_KERNELS_VALUE_HISTOGRAM_H_
