#include "ops/cpu/direct_convolution.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/vector_level.h"
#include "ops/cpu/parallel.h"

namespace divvy::internal {
namespace {

#if defined(__x86_64__)

// The elements of a window up to which a matrix product is slower: 12 to 24 KiB of the kernel are
// read again for every few output columns, and stay in the first-level cache.
constexpr int64_t kMostDirectTaps = 192;
// The elements of the kernel up to which the same holds for its gradient, all of which is read and
// written for each line of the output.
constexpr int64_t kMostDirectSums = 8 << 10;
// Columns and channels are computed several at a time, so few of them would leave most of the work
// unused.
constexpr int64_t kLeastColumns = 6, kLeastColumnsOfGradient = 16, kLeastOutputs = 8;

// N output channels, which are computed together.
template <int N>
struct VectorOf {
  typedef float Type __attribute__((vector_size(N * sizeof(float))));
};
template <int N>
using Vector = typename VectorOf<N>::Type;

#define DIVVY_INLINE inline __attribute__((always_inline))

// `n` zeros. A vector does not lie across two cache lines.
class Floats {
 public:
  explicit Floats(int64_t n)
      : floats_(n + kLine),
        offset_(-reinterpret_cast<uintptr_t>(floats_.data()) / sizeof(float) % kLine) {}
  Floats(Floats&&) = default;  // a copy would begin elsewhere
  float* data() { return floats_.data() + offset_; }
  const float* data() const { return floats_.data() + offset_; }

 private:
  static constexpr int64_t kLine = 16;
  std::vector<float> floats_;
  int64_t offset_;  // of the first float at the beginning of a cache line
};

template <int N>
int64_t Padded(int64_t outputs) {
  return (outputs + N - 1) / N * N;
}

// The kernel's `taps` rows as [vectors of output channels, taps, N], continued with zeros: what is
// read together lies together in the first-level cache.
template <int N>
Floats ByVectors(const float* kernel, int64_t taps, int64_t outputs) {
  Floats vectors(taps * Padded<N>(outputs));
  for (int64_t first = 0; first < outputs; first += N) {
    for (int64_t tap = 0; tap < taps; ++tap)
      std::copy_n(kernel + tap * outputs + first, std::min<int64_t>(N, outputs - first),
                  vectors.data() + first * taps + tap * N);
  }
  return vectors;
}

// The part of an image under the windows of one line of the output: `height` rows, with zeros where
// a window lies outside the image.
class Strip {
 public:
  explicit Strip(const Window2D& window)
      : w_(window),
        row_(std::max<int64_t>(0, ((w_.out_width - 1) * w_.stride + w_.width) * w_.channels)),
        elements_(w_.height * row_) {}

  void Read(const float* x, int64_t line) {
    const int64_t image = line / w_.out_height, i = line % w_.out_height;
    const int64_t begin = std::min(w_.left * w_.channels, row_),
                  end = std::clamp((w_.left + w_.in_width) * w_.channels, begin, row_);
    for (int64_t ky = 0; ky < w_.height; ++ky) {
      const int64_t y = i * w_.stride - w_.top + ky;
      float* const to = elements_.data() + ky * row_;
      if (y < 0 || y >= w_.in_height) {
        std::fill_n(to, row_, 0.0f);
        continue;
      }
      std::fill_n(to, begin, 0.0f);
      std::copy_n(x + (image * w_.in_height + y) * w_.in_width * w_.channels, end - begin,
                  to + begin);
      std::fill_n(to + end, row_ - end, 0.0f);
    }
  }
  int64_t row() const { return row_; }
  // The window of output column 0; the next one begins stride * channels elements further.
  const float* data() const { return elements_.data(); }

 private:
  const Window2D& w_;
  int64_t row_;
  std::vector<float> elements_;
};

// Steps of a loop in a loop: how many, and how far apart their factors are.
struct Steps {
  int64_t outer, outer_stride, inner, inner_stride;
};

// Vectors of a loop: the first, and how far apart those of the next step and those beside it are.
struct Rows {
  const float* first;
  int64_t stride, vector_stride;
};

// sums[r][v] += factors[r][step] * rows[step][v], for every step. gcc keeps the sums in registers
// only in a variable of their own that nobody has the address of.
template <int N, int R, int V>
DIVVY_INLINE void Accumulate(const Steps& steps, const float* const (&factors)[R], const Rows& rows,
                             Vector<N> (&sums)[R][V]) {
  Vector<N> local[R][V];
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) local[r][v] = sums[r][v];
  }
  const float* from = rows.first;
  for (int64_t outer = 0; outer < steps.outer; ++outer) {
    for (int64_t inner = 0; inner < steps.inner; ++inner, from += rows.stride) {
      const int64_t at = outer * steps.outer_stride + inner * steps.inner_stride;
      Vector<N> row[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v)
        std::memcpy(&row[v], from + v * rows.vector_stride, sizeof(row[v]));
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) local[r][v] += factors[r][at] * row[v];
      }
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < V; ++v) sums[r][v] = local[r][v];
  }
}

// V vectors of output channels of one line, from channel `first` on, R columns at a time.
template <int N, int R, int V>
DIVVY_INLINE void LineOfOutput(const Window2D& w, const Strip& strip, const float* kernel,
                               int64_t outputs, int64_t first, float* line) {
  const Steps steps = {w.height, strip.row(), w.width * w.channels, 1};
  const int64_t taps = w.height * w.width * w.channels,
                n = std::min(outputs - first, int64_t{V} * N);
  for (int64_t j = 0; j < w.out_width; j += R) {
    const float* windows[R];
    for (int r = 0; r < R; ++r)
      windows[r] = strip.data() + std::min(j + r, w.out_width - 1) * w.stride * w.channels;
    Vector<N> sums[R][V] = {};
    Accumulate<N>(steps, windows, {kernel + first * taps, N, taps * N}, sums);
    for (int r = 0; r < std::min<int64_t>(R, w.out_width - j); ++r)
      std::memcpy(line + (j + r) * outputs + first, sums[r], n * sizeof(float));
  }
}

// Adds what one line contributes to V vectors of output channels of the kernel's gradient. `line`
// and `sums` have padded rows.
template <int N, int R, int V>
DIVVY_INLINE void GradientOfLine(const Window2D& w, const Strip& strip, const float* line,
                                 int64_t padded, int64_t first, float* dkernel) {
  const Steps steps = {1, 0, w.out_width, w.stride * w.channels};
  const int64_t in_row = w.width * w.channels, elements = w.height * in_row;
  for (int64_t k = 0; k < elements; k += R) {
    const float* places[R];
    for (int r = 0; r < R; ++r) {
      const int64_t element = std::min(k + r, elements - 1);
      places[r] = strip.data() + element / in_row * strip.row() + element % in_row;
    }
    Vector<N> sums[R][V];
    float* const to = dkernel + k * padded + first;
    const int count = static_cast<int>(std::min<int64_t>(R, elements - k));
    for (int r = 0; r < R; ++r)
      std::memcpy(sums[r], to + std::min(r, count - 1) * padded, sizeof(sums[r]));
    Accumulate<N>(steps, places, {line + first, padded, N}, sums);
    for (int r = 0; r < count; ++r) std::memcpy(to + r * padded, sums[r], sizeof(sums[r]));
  }
}

struct Direct {
  const Window2D& window;
  int64_t outputs;

  // Lines [begin, end) of the output. `kernel` is from ByVectors.
  template <int N, int R, int V>
  DIVVY_INLINE void Forward(const float* x, const float* kernel, float* y, int64_t begin,
                            int64_t end) const {
    Strip strip(window);
    for (int64_t line = begin; line < end; ++line) {
      strip.Read(x, line);
      float* const to = y + line * window.out_width * outputs;
      int64_t first = 0;
      for (; first + int64_t{V} * N <= Padded<N>(outputs); first += int64_t{V} * N)
        LineOfOutput<N, R, V>(window, strip, kernel, outputs, first, to);
      for (; first < outputs; first += N)
        LineOfOutput<N, R, 1>(window, strip, kernel, outputs, first, to);
    }
  }

  // Adds what lines [begin, end) contribute to `dkernel`, which has padded rows.
  template <int N, int R, int V>
  DIVVY_INLINE void KernelGradient(const float* x, const float* gradient, float* dkernel,
                                   int64_t begin, int64_t end) const {
    Strip strip(window);
    const int64_t padded = Padded<N>(outputs);
    Floats rows(padded == outputs ? 0 : window.out_width * padded);
    for (int64_t line = begin; line < end; ++line) {
      strip.Read(x, line);
      const float* from = gradient + line * window.out_width * outputs;
      if (padded != outputs) {
        for (int64_t j = 0; j < window.out_width; ++j)
          std::copy_n(from + j * outputs, outputs, rows.data() + j * padded);
        from = rows.data();
      }
      int64_t first = 0;
      for (; first + int64_t{V} * N <= padded; first += int64_t{V} * N)
        GradientOfLine<N, R, V>(window, strip, from, padded, first, dkernel);
      for (; first < padded; first += N)
        GradientOfLine<N, R, 1>(window, strip, from, padded, first, dkernel);
    }
  }
};

// The sums and a row of vectors fit the registers: 32 of 16 floats, or 16 of 8. clang knows no
// prefer-vector-width.
#define DIVVY_FMA __attribute__((flatten, target("avx2,fma")))
#if defined(__clang__)
#define DIVVY_FMA512 \
  __attribute__((flatten, min_vector_width(512), target("avx512f,avx512vl,avx512bw,avx512dq,fma")))
#else
#define DIVVY_FMA512                                                                           \
  __attribute__((flatten, target("avx512f,avx512vl,avx512bw,avx512dq,fma,prefer-vector-width=" \
                                 "512")))
#endif

DIVVY_FMA void ForwardAvx2(const Direct& d, const float* x, const float* kernel, float* y,
                           int64_t begin, int64_t end) {
  d.Forward<8, 6, 2>(x, kernel, y, begin, end);
}
DIVVY_FMA512 void ForwardAvx512(const Direct& d, const float* x, const float* kernel, float* y,
                                int64_t begin, int64_t end) {
  d.Forward<16, 8, 2>(x, kernel, y, begin, end);
}
DIVVY_FMA void KernelGradientAvx2(const Direct& d, const float* x, const float* gradient,
                                  float* dkernel, int64_t begin, int64_t end) {
  d.KernelGradient<8, 6, 2>(x, gradient, dkernel, begin, end);
}
DIVVY_FMA512 void KernelGradientAvx512(const Direct& d, const float* x, const float* gradient,
                                       float* dkernel, int64_t begin, int64_t end) {
  d.KernelGradient<16, 8, 2>(x, gradient, dkernel, begin, end);
}

bool IsWide() { return CurrentVectorLevel() == VectorLevel::kAvx512; }
int64_t TapsOf(const Window2D& w) { return w.height * w.width * w.channels; }

// The gradient is the sum of at most so many parts, for any number of threads.
constexpr int64_t kMostParts = 16;

#endif

}  // namespace

#if defined(__x86_64__)

bool IsDirect(const Window2D& window, int64_t outputs) {
  static const bool has_fma = __builtin_cpu_supports("fma");
  // The windows of a kernel of one place are the image itself.
  const bool has_windows = window.height * window.width > 1;
  return has_fma && CurrentVectorLevel() >= VectorLevel::kAvx2 && has_windows &&
         TapsOf(window) <= kMostDirectTaps && window.out_width >= kLeastColumns &&
         outputs >= kLeastOutputs;
}

bool IsGradientDirect(const Window2D& window, int64_t outputs) {
  return IsDirect(window, outputs) && window.out_width >= kLeastColumnsOfGradient &&
         TapsOf(window) * outputs <= kMostDirectSums;
}

void DirectConv2D(const Window2D& window, int64_t outputs, const float* x, const float* kernel,
                  float* y) {
  const Direct direct{window, outputs};
  const int64_t taps = TapsOf(window);
  const auto run = IsWide() ? ForwardAvx512 : ForwardAvx2;
  const Floats vectors =
      IsWide() ? ByVectors<16>(kernel, taps, outputs) : ByVectors<8>(kernel, taps, outputs);
  // A multiply-add costs about a twentieth of what InSlices calls an element.
  InSlices<void>(
      window.batch * window.out_height, window.out_width * taps * outputs / 20,
      [&](int64_t begin, int64_t end) { run(direct, x, vectors.data(), y, begin, end); });
}

void DirectConv2DKernelGradient(const Window2D& window, int64_t outputs, const float* x,
                                const float* gradient, float* dkernel) {
  const Direct direct{window, outputs};
  const int64_t lines = window.batch * window.out_height, taps = TapsOf(window),
                padded = IsWide() ? Padded<16>(outputs) : Padded<8>(outputs),
                parts = std::clamp<int64_t>(lines, 1, kMostParts);
  Floats sums(parts * taps * padded);
  const auto run = IsWide() ? KernelGradientAvx512 : KernelGradientAvx2;
  InSlices<void>(parts, lines * window.out_width * taps * outputs / parts / 20,
                 [&](int64_t begin, int64_t end) {
                   for (int64_t part = begin; part < end; ++part)
                     run(direct, x, gradient, sums.data() + part * taps * padded,
                         lines * part / parts, lines * (part + 1) / parts);
                 });
  for (int64_t part = 1; part < parts; ++part) {
    const float* const from = sums.data() + part * taps * padded;
    for (int64_t i = 0; i < taps * padded; ++i) sums.data()[i] += from[i];
  }
  for (int64_t tap = 0; tap < taps; ++tap)
    std::copy_n(sums.data() + tap * padded, outputs, dkernel + tap * outputs);
}

#else

bool IsDirect(const Window2D&, int64_t) { return false; }
bool IsGradientDirect(const Window2D&, int64_t) { return false; }
void DirectConv2D(const Window2D&, int64_t, const float*, const float*, float*) {}
void DirectConv2DKernelGradient(const Window2D&, int64_t, const float*, const float*, float*) {}

#endif

}  // namespace divvy::internal
