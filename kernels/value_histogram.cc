#include "kernels/value_histogram.h"

#include <algorithm>
#include <cmath>

namespace divvy {
namespace {

// Calls `visit` with every `stride`-th element.
template <typename T, typename Visit>
void ForEachOf(const Tensor& data, int64_t stride, const Visit& visit) {
  const T* const elements = data.data_as<T>();
  const int64_t count = data.shape().num_elements();
  for (int64_t i = 0; i < count; i += stride) {
    visit(ElementAsDouble(elements[i]));
    if (stride > count - i) break;  // the next index may not overflow
  }
}

template <typename Visit>
void ForEach(const Tensor& data, int64_t stride, const Visit& visit) {
  switch (data.dtype()) {
    case DType::kBool: return ForEachOf<bool>(data, stride, visit);
    case DType::kInt8: return ForEachOf<int8_t>(data, stride, visit);
    case DType::kUInt8: return ForEachOf<uint8_t>(data, stride, visit);
    case DType::kInt32: return ForEachOf<int32_t>(data, stride, visit);
    case DType::kInt64: return ForEachOf<int64_t>(data, stride, visit);
    case DType::kFloat16: return ForEachOf<Half>(data, stride, visit);
    case DType::kBFloat16: return ForEachOf<BFloat16>(data, stride, visit);
    case DType::kFloat32: return ForEachOf<float>(data, stride, visit);
    case DType::kFloat64: return ForEachOf<double>(data, stride, visit);
    case DType::kComplex64:
    case DType::kComplex128:
    case DType::kString: break;  // tensors do not hold them
  }
}

}  // namespace

ValueHistogram HistogramOf(const Tensor& data, int buckets, int64_t most) {
  return HistogramOfParts(absl::MakeConstSpan(&data, 1), buckets, most);
}

ValueHistogram HistogramOfParts(absl::Span<const Tensor> parts, int buckets, int64_t most) {
  int64_t count = 0;
  for (const Tensor& part : parts) count += part.shape().num_elements();
  // A stride that is odd reads other columns in each row of an even length.
  const int64_t stride = count <= most ? 1 : (count / most + (count % most != 0 ? 1 : 0)) | 1;
  ValueHistogram histogram;
  bool found = false;
  const auto for_each = [&](const auto& visit) {
    for (const Tensor& part : parts) ForEach(part, stride, visit);
  };
  for_each([&](double value) {
    if (!std::isfinite(value)) return;
    histogram.low = found ? std::min(histogram.low, value) : value;
    histogram.high = found ? std::max(histogram.high, value) : value;
    found = true;
  });
  if (!found) return histogram;
  histogram.counts.resize(static_cast<size_t>(buckets));
  // Halves: the distance of two doubles may be greater than the greatest double.
  const double half_width = histogram.high / 2 - histogram.low / 2;
  for_each([&](double value) {
    if (!std::isfinite(value)) return;
    const double place =
        half_width > 0 ? (value / 2 - histogram.low / 2) / half_width * buckets : buckets;
    ++histogram.counts[static_cast<size_t>(std::clamp<double>(place, 0, buckets - 1))];
  });
  return histogram;
}

int64_t CountNotFinite(const Tensor& data) {
  int64_t count = 0;
  ForEach(data, 1, [&count](double value) { count += !std::isfinite(value); });
  return count;
}

}  // namespace divvy
