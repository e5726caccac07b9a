// Convolution as matrix products: the windows of a few lines of the output are laid out as the rows
// of a matrix (im2col), which is multiplied while it is in the cache.
#include <algorithm>
#include <vector>

#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/gemm.h"

namespace divvy::internal {
namespace {

// The elements of the matrix of windows that are built at a time: 1 MiB of float32, about the size
// of a core's second-level cache.
constexpr int64_t kBlockElements = 1 << 18;

// A convolution's output in lines (rows of one image), taken a block at a time.
struct Lines {
  explicit Lines(const Window2D& w)
      : total(w.batch * w.out_height),
        window_elements(w.height * w.width * w.channels),
        per_block(kBlockElements / std::max<int64_t>(1, LineElements(w))) {
    per_block = std::clamp<int64_t>(per_block, 1, std::max<int64_t>(1, total));
  }
  static int64_t LineElements(const Window2D& w) {
    return w.out_width * w.height * w.width * w.channels;
  }

  int64_t total;
  int64_t window_elements;
  int64_t per_block;
};

// The columns that a window at output column `j` shares with the image: [begin, end) of the window.
struct Overlap {
  Overlap(const Window2D& w, int64_t j)
      : first(j * w.stride - w.left), begin(std::max<int64_t>(0, -first)) {
    end = std::max(begin, std::min(w.width, w.in_width - first));
  }
  // The column of the image under the window's column 0. It may lie outside the image.
  int64_t first;
  int64_t begin, end;
};

// Calls visit(row of the image, or null where it lies outside; the same row of the window in the
// matrix; overlap) for each row of each window of a line.
template <typename T, typename Visit>
void ForEachWindowRow(const Window2D& w, int64_t line, T* image_base, Visit&& visit) {
  const int64_t image = line / w.out_height, i = line % w.out_height;
  int64_t at = 0;
  for (int64_t j = 0; j < w.out_width; ++j) {
    const Overlap columns(w, j);
    for (int64_t ky = 0; ky < w.height; ++ky, at += w.width * w.channels) {
      const int64_t y = i * w.stride - w.top + ky;
      const bool inside = y >= 0 && y < w.in_height;
      visit(inside ? image_base + (image * w.in_height + y) * w.in_width * w.channels : nullptr, at,
            columns);
    }
  }
}

// Writes the windows of one line: [out_width, height * width * channels].
template <typename T>
void ToWindows(const Window2D& w, int64_t line, const T* x, T* windows) {
  ForEachWindowRow(w, line, x, [&](const T* row, int64_t at, const Overlap& columns) {
    T* to = windows + at;
    const int64_t begin = (row == nullptr ? w.width : columns.begin) * w.channels,
                  end = (row == nullptr ? w.width : columns.end) * w.channels;
    std::fill_n(to, begin, T(0));
    if (row != nullptr)
      std::copy_n(row + (columns.first + columns.begin) * w.channels, end - begin, to + begin);
    std::fill_n(to + end, w.width * w.channels - end, T(0));
  });
}

// The transpose: adds each window's elements to the places in the image that they came from.
template <typename T>
void AddWindows(const Window2D& w, int64_t line, const T* windows, T* x) {
  ForEachWindowRow(w, line, x, [&](T* row, int64_t at, const Overlap& columns) {
    if (row == nullptr) return;
    T* __restrict to = row + (columns.first + columns.begin) * w.channels;
    const T* __restrict from = windows + at + columns.begin * w.channels;
    const int64_t n = (columns.end - columns.begin) * w.channels;
    for (int64_t i = 0; i < n; ++i) to[i] += from[i];
  });
}

// Calls step(product of the block's windows with the kernel: [m, n] = [m, k] x [k, n]; first line;
// lines; room for the windows) block by block.
template <typename T, typename Step>
void ForEachBlock(const Window2D& w, int64_t outputs, Step&& step) {
  const Lines lines(w);
  std::vector<T> windows(lines.per_block * Lines::LineElements(w));
  for (int64_t line = 0; line < lines.total; line += lines.per_block) {
    const int64_t count = std::min(lines.per_block, lines.total - line);
    step(MatMulArgs{false, false, 1, count * w.out_width, outputs, lines.window_elements}, line,
         count, windows.data());
  }
}

template <typename T>
void ConvolveAs(const Window2D& w, const Tensor& x, const Tensor& kernel, Tensor& y) {
  const int64_t outputs = kernel.shape().dim(3);
  ForEachBlock<T>(w, outputs,
                  [&](const MatMulArgs& product, int64_t line, int64_t count, T* windows) {
                    for (int64_t i = 0; i < count; ++i)
                      ToWindows(w, line + i, x.data_as<T>(), windows + i * Lines::LineElements(w));
                    Gemm(product, windows, kernel.data_as<T>(),
                         y.fresh_data<T>() + line * w.out_width * outputs);
                  });
}

// d windows = gradient x kernel^T, added to the places that the windows came from.
template <typename T>
void InputGradientAs(const Window2D& w, const Tensor& kernel, const Tensor& gradient, Tensor& dx) {
  const int64_t outputs = kernel.shape().dim(3);
  std::fill_n(dx.fresh_data<T>(), dx.shape().num_elements(), T(0));
  ForEachBlock<T>(w, outputs, [&](const MatMulArgs& p, int64_t line, int64_t count, T* windows) {
    Gemm({false, true, 1, p.m, p.k, p.n}, gradient.data_as<T>() + line * w.out_width * outputs,
         kernel.data_as<T>(), windows);
    for (int64_t i = 0; i < count; ++i)
      AddWindows(w, line + i, windows + i * Lines::LineElements(w), dx.fresh_data<T>());
  });
}

// d kernel = windows^T x gradient, summed over the blocks.
template <typename T>
void KernelGradientAs(const Window2D& w, const Tensor& x, const Tensor& gradient, Tensor& dkernel) {
  const int64_t outputs = dkernel.shape().dim(3);
  std::fill_n(dkernel.fresh_data<T>(), dkernel.shape().num_elements(), T(0));
  ForEachBlock<T>(w, outputs, [&](const MatMulArgs& p, int64_t line, int64_t count, T* windows) {
    for (int64_t i = 0; i < count; ++i)
      ToWindows(w, line + i, x.data_as<T>(), windows + i * Lines::LineElements(w));
    Gemm({true, false, 1, p.k, p.n, p.m}, windows,
         gradient.data_as<T>() + line * w.out_width * outputs, dkernel.fresh_data<T>(), true);
  });
}

}  // namespace

void CpuBackend::Conv2D(const Window2D& window, const Tensor& x, const Tensor& kernel,
                        Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) { ConvolveAs<decltype(t)>(window, x, kernel, y); });
}

void CpuBackend::Conv2DInputGradient(const Window2D& window, const Tensor& kernel,
                                     const Tensor& gradient, Tensor& dx) const {
  OnFloating(kernel.dtype(),
             [&](auto t) { InputGradientAs<decltype(t)>(window, kernel, gradient, dx); });
}

void CpuBackend::Conv2DKernelGradient(const Window2D& window, const Tensor& x,
                                      const Tensor& gradient, Tensor& dkernel) const {
  OnFloating(x.dtype(),
             [&](auto t) { KernelGradientAs<decltype(t)>(window, x, gradient, dkernel); });
}

}  // namespace divvy::internal
