// Convolution as matrix products: the windows of a few lines of the output are laid out as the rows
// of a matrix (im2col), which is multiplied while it is in the cache. Images with few channels take
// another way (direct_convolution.h).
#include <algorithm>
#include <type_traits>
#include <vector>

#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/direct_convolution.h"
#include "ops/cpu/gemm.h"
#include "ops/cpu/parallel.h"

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
// lines; room for the windows) block by block for lines [begin, end).
template <typename T, typename Step>
void ForEachBlock(const Window2D& w, int64_t outputs, int64_t begin, int64_t end,
                  const Step& step) {
  const Lines lines(w);
  std::vector<T> windows(std::min(lines.per_block, end - begin) * Lines::LineElements(w));
  for (int64_t line = begin; line < end; line += lines.per_block) {
    const int64_t count = std::min(lines.per_block, end - line);
    step(MatMulArgs{false, false, 1, count * w.out_width, outputs, lines.window_elements}, line,
         count, windows.data());
  }
}

// Calls body(begin, end) for parts of `n` lines, each a multiple of `unit`, on several threads if
// there is work for them. The cut depends on the number of threads alone, and so do the bits.
template <typename Body>
void InPartsIfWorth(const Window2D& w, int64_t outputs, int64_t unit, const Body& body) {
  const int64_t lines = w.batch * w.out_height;
  const MatMulArgs all{
      false, false, 1, lines * w.out_width, outputs, w.height * w.width * w.channels};
  IsWorthSharing(all) ? InParts(lines, unit, body) : body(0, lines);
}

// Each thread computes some lines.
template <typename T>
void ConvolveAs(const Window2D& w, const Tensor& x, const Tensor& kernel, Tensor& y) {
  const int64_t outputs = kernel.shape().dim(3);
  const T* const from = x.data_as<T>();
  const T* const by = kernel.data_as<T>();
  T* const to = y.fresh_data<T>();
  InPartsIfWorth(w, outputs, 1, [=, &w](int64_t begin, int64_t end) {
    ForEachBlock<T>(w, outputs, begin, end,
                    [=, &w](const MatMulArgs& product, int64_t line, int64_t count, T* windows) {
                      for (int64_t i = 0; i < count; ++i)
                        ToWindows(w, line + i, from, windows + i * Lines::LineElements(w));
                      GemmAlone(product, windows, by, to + line * w.out_width * outputs);
                    });
  });
}

// d windows = gradient x kernel^T, added to the places that the windows came from. Each thread has
// some images.
template <typename T>
void InputGradientAs(const Window2D& w, const Tensor& kernel, const Tensor& gradient, Tensor& dx) {
  const int64_t outputs = kernel.shape().dim(3);
  const T* const from = gradient.data_as<T>();
  const T* const by = kernel.data_as<T>();
  T* const to = dx.fresh_data<T>();
  std::fill_n(to, dx.shape().num_elements(), T(0));
  if (w.batch * w.out_height == 0) return;
  // If there are fewer images than threads, the threads share the products.
  const bool by_image = w.batch >= ComputeThreads();
  const auto part = [=, &w](int64_t begin, int64_t end) {
    ForEachBlock<T>(w, outputs, begin, end,
                    [=, &w](const MatMulArgs& p, int64_t line, int64_t count, T* windows) {
                      const MatMulArgs back{false, true, 1, p.m, p.k, p.n};
                      const T* const rows = from + line * w.out_width * outputs;
                      by_image ? GemmAlone(back, rows, by, windows) : Gemm(back, rows, by, windows);
                      for (int64_t i = 0; i < count; ++i)
                        AddWindows(w, line + i, windows + i * Lines::LineElements(w), to);
                    });
  };
  by_image ? InPartsIfWorth(w, outputs, w.out_height, part) : part(0, w.batch * w.out_height);
}

// d kernel = windows^T x gradient, summed over the blocks.
template <typename T>
void KernelGradientAs(const Window2D& w, const Tensor& x, const Tensor& gradient, Tensor& dkernel) {
  const int64_t outputs = dkernel.shape().dim(3), line_elements = Lines::LineElements(w);
  const T* const from = x.data_as<T>();
  T* const to = dkernel.fresh_data<T>();
  std::fill_n(to, dkernel.shape().num_elements(), T(0));
  ForEachBlock<T>(w, outputs, 0, w.batch * w.out_height,
                  [=, &w](const MatMulArgs& p, int64_t line, int64_t count, T* windows) {
                    InSlices<void>(count, line_elements, [=, &w](int64_t begin, int64_t end) {
                      for (int64_t i = begin; i < end; ++i)
                        ToWindows(w, line + i, from, windows + i * line_elements);
                    });
                    Gemm({true, false, 1, p.k, p.n, p.m}, windows,
                         gradient.data_as<T>() + line * w.out_width * outputs, to, true);
                  });
}

}  // namespace

void CpuBackend::Conv2D(const Window2D& window, const Tensor& x, const Tensor& kernel,
                        Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    if constexpr (std::is_same_v<T, float>) {
      const int64_t outputs = kernel.shape().dim(3);
      if (IsDirect(window, outputs))
        return DirectConv2D(window, outputs, x.data_as<T>(), kernel.data_as<T>(),
                            y.fresh_data<T>());
    }
    ConvolveAs<T>(window, x, kernel, y);
  });
}

void CpuBackend::Conv2DInputGradient(const Window2D& window, const Tensor& kernel,
                                     const Tensor& gradient, Tensor& dx) const {
  OnFloating(kernel.dtype(),
             [&](auto t) { InputGradientAs<decltype(t)>(window, kernel, gradient, dx); });
}

void CpuBackend::Conv2DKernelGradient(const Window2D& window, const Tensor& x,
                                      const Tensor& gradient, Tensor& dkernel) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    if constexpr (std::is_same_v<T, float>) {
      const int64_t outputs = dkernel.shape().dim(3);
      if (IsGradientDirect(window, outputs))
        return DirectConv2DKernelGradient(window, outputs, x.data_as<T>(), gradient.data_as<T>(),
                                          dkernel.fresh_data<T>());
    }
    KernelGradientAs<T>(window, x, gradient, dkernel);
  });
}

}  // namespace divvy::internal
