#include <algorithm>
#include <limits>
#include <vector>

#include "ops/cpu/cpu_backend.h"

namespace divvy::internal {
namespace {

// Calls visit(offset of the output's channels, offset of the input's channels) for each position of
// the output and each position of the image in its window.
template <typename Visit>
void ForEachPair(const Window2D& w, Visit&& visit) {
  const int64_t places = w.batch * w.out_height * w.out_width;
  for (int64_t place = 0; place < places; ++place) {
    const int64_t j = place % w.out_width, i = place / w.out_width % w.out_height,
                  image = place / w.out_width / w.out_height;
    const int64_t top = i * w.stride - w.top, left = j * w.stride - w.left;
    for (int64_t y = std::max<int64_t>(0, top); y < std::min(top + w.height, w.in_height); ++y) {
      for (int64_t x = std::max<int64_t>(0, left); x < std::min(left + w.width, w.in_width); ++x) {
        visit(place * w.channels, ((image * w.in_height + y) * w.in_width + x) * w.channels);
      }
    }
  }
}

template <typename T>
void MaxPoolAs(const Window2D& w, const Tensor& x, Tensor& y) {
  std::fill_n(y.fresh_data<T>(), y.shape().num_elements(), -std::numeric_limits<T>::infinity());
  ForEachPair(w, [&](int64_t out, int64_t in) {
    T* __restrict max = y.fresh_data<T>() + out;
    const T* __restrict from = x.data_as<T>() + in;
    // The result is NaN if an element is.
    for (int64_t c = 0; c < w.channels; ++c)
      max[c] = max[c] >= from[c] || max[c] != max[c] ? max[c] : from[c];
  });
}

// The gradient of an output element goes to the first element of its window that equals the
// maximum.
template <typename T>
void MaxPoolGradientAs(const Window2D& w, const Tensor& x, const Tensor& y, const Tensor& gradient,
                       Tensor& dx) {
  std::fill_n(dx.fresh_data<T>(), dx.shape().num_elements(), T(0));
  std::vector<T> left(gradient.data_as<T>(),
                      gradient.data_as<T>() + gradient.shape().num_elements());
  ForEachPair(w, [&](int64_t out, int64_t in) {
    const T* __restrict max = y.data_as<T>() + out;
    const T* __restrict from = x.data_as<T>() + in;
    T* __restrict rest = left.data() + out;
    T* __restrict to = dx.fresh_data<T>() + in;
    for (int64_t c = 0; c < w.channels; ++c) {
      const T given = from[c] == max[c] ? rest[c] : T(0);
      to[c] += given;
      rest[c] = from[c] == max[c] ? T(0) : rest[c];
    }
  });
}

}  // namespace

void CpuBackend::MaxPool(const Window2D& window, const Tensor& x, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) { MaxPoolAs<decltype(t)>(window, x, y); });
}

void CpuBackend::MaxPoolGradient(const Window2D& window, const Tensor& x, const Tensor& y,
                                 const Tensor& gradient, Tensor& dx) const {
  OnFloating(x.dtype(),
             [&](auto t) { MaxPoolGradientAs<decltype(t)>(window, x, y, gradient, dx); });
}

}  // namespace divvy::internal
