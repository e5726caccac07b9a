// Convolution as matrix products: the windows of some lines of the output are laid out as the rows
// of a matrix (im2col).
#include <limits>

#include "ops/cuda/kernel_math.h"
#include "ops/loops.h"

namespace divvy::cuda {
namespace {

using internal::Divide;
using internal::Division;

// A convolution's output in lines (rows of one image), taken a block at a time.
struct Lines {
  Lines(const Window2D& w, int64_t most_elements)
      : out_width(w.out_width),
        total(w.batch * w.out_height),
        window(w.height * w.width * w.channels),
        elements(out_width * window) {
    per_block = std::clamp<int64_t>(most_elements / std::max<int64_t>(1, elements), 1,
                                    std::max<int64_t>(1, total));
  }
  int64_t block_elements() const { return per_block * elements; }

  int64_t out_width, total, window, elements, per_block;
};

// The position of element `at` in images of this extent.
struct Pixel {
  int64_t image, row, column, channel;
  DIVVY_HOST_DEVICE Pixel(int64_t at, int64_t height, int64_t width, int64_t channels) {
    const Division of_pixel = Divide(at, channels), of_line = Divide(of_pixel.whole, width),
                   of_image = Divide(of_line.whole, height);
    channel = of_pixel.rest, column = of_line.rest, row = of_image.rest, image = of_image.whole;
  }
};

// Element i of the matrix of windows that begins with line `first`; 0 outside the image.
template <typename T>
void ToWindows(Stream stream, const Window2D& w, int64_t first, int64_t lines, const T* x,
               T* windows) {
  const int64_t window = w.height * w.width * w.channels;
  ForEach(stream, lines * w.out_width * window, [=] DIVVY_BODY(int64_t i) {
    const auto [place, in_window] = Divide(i, window);
    const auto [pixel, channel] = Divide(in_window, w.channels);
    const auto [ky, kx] = Divide(pixel, w.width);
    const auto [line_of_block, j] = Divide(place, w.out_width);
    const auto [image, line] = Divide(first + line_of_block, w.out_height);
    const int64_t row = line * w.stride - w.top + ky, column = j * w.stride - w.left + kx;
    const bool is_inside = row >= 0 && row < w.in_height && column >= 0 && column < w.in_width;
    windows[i] = is_inside
                     ? x[((image * w.in_height + row) * w.in_width + column) * w.channels + channel]
                     : T(0);
  });
}

// The windows along one axis that cover position `at`: [begin, end).
struct Covering {
  int64_t begin, end;
  DIVVY_HOST_DEVICE Covering(int64_t at, int64_t padding, int64_t size, int64_t stride,
                             int64_t places) {
    const int64_t last = at + padding, first = last - size + 1;
    begin = first <= 0 ? 0 : (first + stride - 1) / stride;
    end = last / stride + 1 < places ? last / stride + 1 : places;
  }
};

// The transpose: each element of the images that have these lines adds up its values in all windows
// that cover it.
template <typename T>
void AddWindows(Stream stream, const Window2D& w, int64_t first, int64_t lines, const T* windows,
                T* x) {
  const int64_t window = w.height * w.width * w.channels,
                image_elements = w.in_height * w.in_width * w.channels;
  const int64_t first_image = first / w.out_height, last_image = (first + lines - 1) / w.out_height;
  ForEach(stream, (last_image - first_image + 1) * image_elements,
          [=] DIVVY_BODY(int64_t i_of_lines) {
            const int64_t at = first_image * image_elements + i_of_lines;
            const Pixel pixel(at, w.in_height, w.in_width, w.channels);
            const int64_t row = pixel.row, column = pixel.column, channel = pixel.channel,
                          image = pixel.image;
            const Covering rows(row, w.top, w.height, w.stride, w.out_height),
                columns(column, w.left, w.width, w.stride, w.out_width);
            Wide<T> sum = 0;
            for (int64_t i = rows.begin; i < rows.end; ++i) {
              const int64_t line = image * w.out_height + i - first;
              if (line < 0 || line >= lines) continue;
              for (int64_t j = columns.begin; j < columns.end; ++j) {
                const int64_t ky = row + w.top - i * w.stride, kx = column + w.left - j * w.stride;
                sum += windows[(line * w.out_width + j) * window +
                               (ky * w.width + kx) * w.channels + channel];
              }
            }
            x[at] = x[at] + sum;
          });
}

template <typename T>
void MaxPoolAs(Stream stream, const Window2D& w, const T* x, T* y) {
  ForEach(stream, w.batch * w.out_height * w.out_width * w.channels, [=] DIVVY_BODY(int64_t at) {
    const Pixel pixel(at, w.out_height, w.out_width, w.channels);
    const int64_t i = pixel.row, j = pixel.column, channel = pixel.channel, image = pixel.image;
    Wide<T> max = -std::numeric_limits<Wide<T>>::infinity();
    for (int64_t ky = 0; ky < w.height; ++ky) {
      for (int64_t kx = 0; kx < w.width; ++kx) {
        const int64_t row = i * w.stride - w.top + ky, column = j * w.stride - w.left + kx;
        if (row < 0 || row >= w.in_height || column < 0 || column >= w.in_width) continue;
        max = internal::Larger(
            max,
            Wide<T>(x[((image * w.in_height + row) * w.in_width + column) * w.channels + channel]));
      }
    }
    y[at] = max;
  });
}

// Whether the element at (row, column) is the first of window (i, j) that equals its maximum.
template <typename T>
DIVVY_HOST_DEVICE bool IsFirstMaximum(const Window2D& w, const T* channel_of_image, int64_t i,
                                      int64_t j, int64_t row, int64_t column, Wide<T> max) {
  for (int64_t ky = 0; ky < w.height; ++ky) {
    for (int64_t kx = 0; kx < w.width; ++kx) {
      const int64_t r = i * w.stride - w.top + ky, c = j * w.stride - w.left + kx;
      if (r < 0 || r >= w.in_height || c < 0 || c >= w.in_width) continue;
      if (r == row && c == column)
        return channel_of_image[(r * w.in_width + c) * w.channels] == max;
      if (channel_of_image[(r * w.in_width + c) * w.channels] == max) return false;
    }
  }
  return false;
}

// Each element of the images adds up the gradients of the windows whose maximum it is.
template <typename T>
void MaxPoolGradientAs(Stream stream, const Window2D& w, const T* x, const T* y, const T* gradient,
                       T* dx) {
  ForEach(stream, w.batch * w.in_height * w.in_width * w.channels, [=] DIVVY_BODY(int64_t at) {
    const Pixel pixel(at, w.in_height, w.in_width, w.channels);
    const int64_t row = pixel.row, column = pixel.column, channel = pixel.channel,
                  image = pixel.image;
    const T* const from = x + image * w.in_height * w.in_width * w.channels + channel;
    const Covering rows(row, w.top, w.height, w.stride, w.out_height),
        columns(column, w.left, w.width, w.stride, w.out_width);
    Wide<T> sum = 0;
    for (int64_t i = rows.begin; i < rows.end; ++i) {
      for (int64_t j = columns.begin; j < columns.end; ++j) {
        const int64_t out = ((image * w.out_height + i) * w.out_width + j) * w.channels + channel;
        if (IsFirstMaximum(w, from, i, j, row, column, y[out])) sum += gradient[out];
      }
    }
    dx[at] = sum;
  });
}

template <typename T>
void AddPart(Stream stream, const T* part, int64_t n, Wide<T>* sum) {
  ForEach(stream, n, [=] DIVVY_BODY(int64_t i) { sum[i] += part[i]; });
}

template <typename T>
void RoundTo(Stream stream, const Wide<T>* sum, int64_t n, T* y) {
  ForEach(stream, n, [=] DIVVY_BODY(int64_t i) { y[i] = sum[i]; });
}

// Calls step(product of the block's windows with the kernel: [m, n] = [m, k] x [k, n]; first line;
// lines).
template <typename Step>
void ForEachBlock(const Lines& lines, int64_t outputs, Step&& step) {
  for (int64_t line = 0; line < lines.total; line += lines.per_block) {
    const int64_t count = std::min(lines.per_block, lines.total - line);
    step(MatMulArgs{false, false, 1, count * lines.out_width, outputs, lines.window}, line, count);
  }
}

}  // namespace

void KernelMath::Conv2D(int device, const Window2D& w, const Array& x, const Array& kernel,
                        const Array& y) {
  const Stream stream = Use(device);
  const int64_t outputs = kernel.dim(3);
  const Lines lines(w, most_window_elements);
  WithFloating(y.element, [&](auto t) {
    using T = decltype(t);
    const Scratch windows(*this, device, lines.block_elements() * sizeof(T));
    if (!windows.is_there()) return;
    ForEachBlock(lines, outputs, [&](const MatMulArgs& product, int64_t line, int64_t count) {
      ToWindows(stream, w, line, count, x.as<const T>(), windows.as<T>());
      Gemm(device, product, y.element, windows.as<T>(), kernel.data,
           y.as<T>() + line * w.out_width * outputs);
    });
  });
}

// d windows = gradient x kernel^T, added to the places that the windows came from.
void KernelMath::Conv2DInputGradient(int device, const Window2D& w, const Array& kernel,
                                     const Array& gradient, const Array& dx) {
  const Stream stream = Use(device);
  const int64_t outputs = kernel.dim(3);
  const Lines lines(w, most_window_elements);
  WithFloating(dx.element, [&](auto t) {
    using T = decltype(t);
    const Scratch windows(*this, device, lines.block_elements() * sizeof(T));
    if (!windows.is_there()) return;
    Zero(device, dx.data, dx.size() * sizeof(T));
    ForEachBlock(lines, outputs, [&](const MatMulArgs& p, int64_t line, int64_t count) {
      Gemm(device, {false, true, 1, p.m, p.k, p.n}, dx.element,
           gradient.as<const T>() + line * w.out_width * outputs, kernel.data, windows.as<T>());
      AddWindows(stream, w, line, count, windows.as<const T>(), dx.as<T>());
    });
  });
}

// d kernel = windows^T x gradient, summed over the blocks. 16-bit types are summed as float32 and
// rounded at the end.
void KernelMath::Conv2DKernelGradient(int device, const Window2D& w, const Array& x,
                                      const Array& gradient, const Array& dkernel) {
  const Stream stream = Use(device);
  const int64_t outputs = dkernel.dim(3), size = dkernel.size();
  const Lines lines(w, most_window_elements);
  const bool is_one_block = lines.total == lines.per_block;
  WithFloating(dkernel.element, [&](auto t) {
    using T = decltype(t);
    const Scratch windows(*this, device, lines.block_elements() * sizeof(T));
    const Scratch part(*this, device, is_one_block ? 0 : size * sizeof(T)),
        sum(*this, device, is_one_block ? 0 : size * sizeof(Wide<T>));
    if (!windows.is_there() || !part.is_there() || !sum.is_there()) return;
    if (!is_one_block) Zero(device, sum.as<void>(), size * sizeof(Wide<T>));
    ForEachBlock(lines, outputs, [&](const MatMulArgs& p, int64_t line, int64_t count) {
      ToWindows(stream, w, line, count, x.as<const T>(), windows.as<T>());
      Gemm(device, {true, false, 1, p.k, p.n, p.m}, dkernel.element, windows.as<T>(),
           gradient.as<const T>() + line * w.out_width * outputs,
           is_one_block ? dkernel.data : part.as<void>());
      if (!is_one_block) AddPart(stream, part.as<const T>(), size, sum.as<Wide<T>>());
    });
    if (!is_one_block) RoundTo(stream, sum.as<const Wide<T>>(), size, dkernel.as<T>());
  });
}

void KernelMath::MaxPool(int device, const Window2D& w, const Array& x, const Array& y) {
  const Stream stream = Use(device);
  WithFloating(y.element, [&](auto t) {
    MaxPoolAs(stream, w, x.as<const decltype(t)>(), y.as<decltype(t)>());
  });
}

void KernelMath::MaxPoolGradient(int device, const Window2D& w, const Array& x, const Array& y,
                                 const Array& gradient, const Array& dx) {
  const Stream stream = Use(device);
  WithFloating(dx.element, [&](auto t) {
    using T = decltype(t);
    MaxPoolGradientAs(stream, w, x.as<const T>(), y.as<const T>(), gradient.as<const T>(),
                      dx.as<T>());
  });
}

}  // namespace divvy::cuda
