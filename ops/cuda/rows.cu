// Computations on each row by itself.
#include <limits>

#include "ops/cuda/kernel_math.h"
#include "ops/loops.h"

namespace divvy::cuda {
namespace {

struct Rows {
  int64_t rows, width;
  explicit Rows(const Array& x) : width(x.dim(-1)) { rows = width == 0 ? 0 : x.size() / width; }
};

template <typename T>
DIVVY_HOST_DEVICE double MaxOf(const T* x, int64_t n, const Lanes& lanes) {
  double max = -std::numeric_limits<double>::infinity();
  for (int64_t j = lanes.index; j < n; j += lanes.count)
    max = internal::Larger(max, static_cast<double>(x[j]));
  return lanes.Max(max);
}

// The sum of exp(x - max).
template <typename T>
DIVVY_HOST_DEVICE double SumOfExponentials(const T* x, int64_t n, Wide<T> max, const Lanes& lanes) {
  double sum = 0;
  for (int64_t j = lanes.index; j < n; j += lanes.count) sum += internal::ExpOf(x[j] - max);
  return lanes.Sum(sum);
}

// y = exp(x - max) * factor. The exponential is computed again, because this costs less than
// writing it to memory and reading it back, and because y is then rounded only once.
template <typename T>
DIVVY_HOST_DEVICE void ScaledExponentials(const T* x, T* y, int64_t n, Wide<T> max, Wide<T> factor,
                                          const Lanes& lanes) {
  for (int64_t j = lanes.index; j < n; j += lanes.count)
    y[j] = internal::ExpOf(x[j] - max) * factor;
}

template <typename T>
DIVVY_HOST_DEVICE double Dot(const T* a, const T* b, int64_t n, const Lanes& lanes) {
  double sum = 0;
  for (int64_t j = lanes.index; j < n; j += lanes.count)
    sum += static_cast<double>(a[j]) * static_cast<double>(b[j]);
  return lanes.Sum(sum);
}

template <typename T>
void SoftmaxAs(Stream stream, const Rows& extent, const T* x, T* y) {
  ForEachRow(stream, extent.rows, extent.width, [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
    const T* from = x + row * extent.width;
    const auto max = static_cast<Wide<T>>(MaxOf(from, extent.width, lanes));
    const double sum = SumOfExponentials(from, extent.width, max, lanes);
    ScaledExponentials(from, y + row * extent.width, extent.width, max,
                       static_cast<Wide<T>>(1 / sum), lanes);
  });
}

template <typename T>
void SoftmaxGradientAs(Stream stream, const Rows& extent, const T* y, const T* gradient, T* dx) {
  ForEachRow(stream, extent.rows, extent.width, [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
    const int64_t at = row * extent.width;
    const auto dot = static_cast<Wide<T>>(Dot(y + at, gradient + at, extent.width, lanes));
    for (int64_t j = at + lanes.index; j < at + extent.width; j += lanes.count)
      dx[j] = y[j] * (gradient[j] - dot);
  });
}

// The loss of a row by the number of its class.
template <typename T>
DIVVY_HOST_DEVICE Wide<T> LossOfClass(const T* x, int64_t label, int64_t row, const Array& logits,
                                      Wide<T> max, Wide<T> log_sum, Fault* fault) {
  if (label >= 0 && label < logits.dims[1]) return log_sum - (x[label] - max);
  Report(fault, Fault::kLabelOutOfRange, label, row, logits);
  return 0;
}

template <typename T>
DIVVY_HOST_DEVICE Wide<T> LossOfProbabilities(const T* x, const T* probability, int64_t row,
                                              const Array& logits, Wide<T> max, Wide<T> log_sum,
                                              Fault* fault, const Lanes& lanes) {
  const int64_t classes = logits.dims[1];
  double loss = 0;
  for (int64_t j = lanes.index; j < classes; j += lanes.count) {
    if (!IsInUnit(Wide<T>(probability[j]), fault, Fault::kProbabilityOutOfRange, row * classes + j,
                  logits))
      continue;
    // Skips 0 times infinity, which would make the loss NaN.
    if (probability[j] != 0) loss += probability[j] * (log_sum - (x[j] - max));
  }
  return static_cast<Wide<T>>(lanes.Sum(loss));
}

// `numbers` or `probabilities`, the other null.
template <typename T>
void CrossEntropy(Stream stream, const Array& logits, const int64_t* numbers,
                  const T* probabilities, T* losses, T* softmax, Fault* fault) {
  const Rows extent(logits);
  const T* from = logits.as<const T>();
  ForEachRow(stream, extent.rows, extent.width, [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
    const T* x = from + row * extent.width;
    const auto max = static_cast<Wide<T>>(MaxOf(x, extent.width, lanes));
    const auto sum = static_cast<Wide<T>>(SumOfExponentials(x, extent.width, max, lanes));
    const Wide<T> log_sum = std::log(sum);
    const Wide<T> weighed = numbers != nullptr
                                ? 0
                                : LossOfProbabilities(x, probabilities + row * extent.width, row,
                                                      logits, max, log_sum, fault, lanes);
    if (lanes.index == 0)
      losses[row] = numbers != nullptr
                        ? LossOfClass(x, numbers[row], row, logits, max, log_sum, fault)
                        : weighed;
    ScaledExponentials(x, softmax + row * extent.width, extent.width, max, 1 / sum, lanes);
  });
}

template <typename T>
void CrossEntropyGradient(Stream stream, const Rows& extent, const int64_t* numbers,
                          const T* probabilities, const T* gradient, T* softmax) {
  ForEachRow(stream, extent.rows, extent.width, [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
    T* y = softmax + row * extent.width;
    const Wide<T> g = gradient[row];
    // The sum of the probabilities. The derivative also holds for other weights.
    double total = 1;
    if (numbers == nullptr) {
      total = 0;
      for (int64_t j = lanes.index; j < extent.width; j += lanes.count)
        total += probabilities[row * extent.width + j];
      total = lanes.Sum(total);
    }
    for (int64_t j = lanes.index; j < extent.width; j += lanes.count) {
      const Wide<T> target = numbers == nullptr  ? Wide<T>(probabilities[row * extent.width + j])
                             : numbers[row] == j ? 1
                                                 : 0;
      y[j] = g * (static_cast<Wide<T>>(total) * y[j] - target);
    }
  });
}

// The numbers that normalize a row: (x - mean) * factor. `floored`: epsilon replaced the norm, so
// the factor does not depend on the row.
struct Standard {
  double mean, factor;
  bool floored;
};

template <typename T>
DIVVY_HOST_DEVICE Standard StandardOf(Norm norm, const T* x, int64_t n, double epsilon,
                                      const Lanes& lanes) {
  if (norm == Norm::kL2) {
    const double squares = Dot(x, x, n, lanes);
    return {0, 1 / std::sqrt(squares > epsilon ? squares : epsilon), squares < epsilon};
  }
  double mean = 0, squares = 0;
  for (int64_t j = lanes.index; j < n; j += lanes.count) mean += x[j];
  mean = lanes.Sum(mean) / static_cast<double>(n);
  for (int64_t j = lanes.index; j < n; j += lanes.count) squares += (x[j] - mean) * (x[j] - mean);
  return {mean, 1 / std::sqrt(lanes.Sum(squares) / static_cast<double>(n) + epsilon), false};
}

template <typename T>
void NormalizeAs(Stream stream, const Rows& extent, Norm norm, double epsilon, const T* x, T* y) {
  ForEachRow(stream, extent.rows, extent.width, [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
    const int64_t at = row * extent.width;
    const Standard s = StandardOf(norm, x + at, extent.width, epsilon, lanes);
    for (int64_t j = at + lanes.index; j < at + extent.width; j += lanes.count)
      y[j] = static_cast<T>((x[j] - s.mean) * s.factor);
  });
}

// With y the normalised row: dx = factor (g - mean(g) - y mean(g y)) for a layer's norm, factor (g
// - y (g . y)) for the l2 norm.
template <typename T>
void NormalizeGradientAs(Stream stream, const Rows& extent, Norm norm, double epsilon, const T* x,
                         const T* gradient, T* dx) {
  ForEachRow(stream, extent.rows, extent.width, [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
    const int64_t at = row * extent.width;
    const auto n = static_cast<double>(extent.width);
    const Standard s = StandardOf(norm, x + at, extent.width, epsilon, lanes);
    double sum = 0, dot = 0;
    for (int64_t j = at + lanes.index; j < at + extent.width; j += lanes.count) {
      sum += gradient[j];
      dot += gradient[j] * (x[j] - s.mean) * s.factor;
    }
    sum = lanes.Sum(sum);
    dot = lanes.Sum(dot);
    const double shift = norm == Norm::kLayer ? sum / n : 0;
    const double along = s.floored ? 0 : norm == Norm::kLayer ? dot / n : dot;
    for (int64_t j = at + lanes.index; j < at + extent.width; j += lanes.count) {
      dx[j] = static_cast<T>(s.factor * (gradient[j] - shift - along * (x[j] - s.mean) * s.factor));
    }
  });
}

template <typename T>
void ClipRowsAs(Stream stream, int64_t rows, int64_t width, double max_norm, const T* x, T* y) {
  ForEachRow(stream, rows, width, [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
    const int64_t at = row * width;
    const double norm = std::sqrt(Dot(x + at, x + at, width, lanes));
    const Wide<T> factor = norm > max_norm ? static_cast<Wide<T>>(max_norm / norm) : 1;
    for (int64_t j = at + lanes.index; j < at + width; j += lanes.count) y[j] = x[j] * factor;
  });
}

template <typename T>
void ClipRowsGradientAs(Stream stream, int64_t rows, int64_t width, double max_norm, const T* x,
                        const T* gradient, T* dx) {
  ForEachRow(stream, rows, width, [=] DIVVY_BODY(int64_t row, const Lanes& lanes) {
    const int64_t at = row * width;
    const double norm = std::sqrt(Dot(x + at, x + at, width, lanes));
    const bool clips = norm > max_norm;
    const double factor = clips ? max_norm / norm : 1;
    // The component of the gradient along the row would only change the row's length, which the
    // clip sets. So this component is removed.
    const double along = clips ? Dot(x + at, gradient + at, width, lanes) / (norm * norm) : 0;
    for (int64_t j = at + lanes.index; j < at + width; j += lanes.count)
      dx[j] = static_cast<T>(factor * (gradient[j] - along * x[j]));
  });
}

// The weights and divisors of lists of rows; 1 where there are none.
template <typename T>
struct Lists {
  const int64_t* splits;
  const T* weights;
  const T* divisors;
  explicit Lists(const RowListArrays& lists)
      : splits(lists.row_splits),
        weights(static_cast<const T*>(lists.weights)),
        divisors(static_cast<const T*>(lists.divisors)) {}
  DIVVY_HOST_DEVICE Wide<T> Weight(int64_t row) const {
    return weights != nullptr ? Wide<T>(weights[row]) : 1;
  }
  DIVVY_HOST_DEVICE Wide<T> Divisor(int64_t list) const {
    return divisors != nullptr ? Wide<T>(divisors[list]) : 1;
  }
};

template <typename T>
void CombineRowsAs(Stream stream, const Lists<T>& lists, int64_t batch, int64_t width, const T* x,
                   T* y) {
  ForEach(stream, batch * width, [=] DIVVY_BODY(int64_t i) {
    const auto [list, column] = internal::Divide(i, width);
    const Wide<T> divisor = lists.Divisor(list);
    Wide<T> sum = 0;
    for (int64_t j = lists.splits[list]; divisor != 0 && j < lists.splits[list + 1]; ++j)
      sum += lists.Weight(j) * x[j * width + column];
    y[i] = divisor != 0 ? sum / divisor : 0;
  });
}

template <typename T>
void SpreadRowsAs(Stream stream, const Lists<T>& lists, int64_t batch, int64_t width, const T* y,
                  T* x) {
  ForEachRow(stream, batch, kWarp, [=] DIVVY_BODY(int64_t list, const Lanes& lanes) {
    const Wide<T> divisor = lists.Divisor(list);
    const int64_t first = lists.splits[list], elements = (lists.splits[list + 1] - first) * width;
    for (int64_t i = lanes.index; i < elements; i += lanes.count) {
      const auto [row_of_list, column] = internal::Divide(i, width);
      const int64_t row = first + row_of_list;
      const Wide<T> factor = divisor == 0 ? 0 : lists.Weight(row) / divisor;
      x[first * width + i] = factor * y[list * width + column];
    }
  });
}

}  // namespace

void KernelMath::Softmax(int device, const Array& x, const Array& y) {
  const Stream stream = Use(device);
  WithFloating(y.element, [&](auto t) {
    SoftmaxAs(stream, Rows(x), x.as<const decltype(t)>(), y.as<decltype(t)>());
  });
}

void KernelMath::SoftmaxGradient(int device, const Array& y, const Array& gradient,
                                 const Array& dx) {
  const Stream stream = Use(device);
  WithFloating(dx.element, [&](auto t) {
    using T = decltype(t);
    SoftmaxGradientAs(stream, Rows(y), y.as<const T>(), gradient.as<const T>(), dx.as<T>());
  });
}

void KernelMath::SoftmaxCrossEntropy(int device, const Array& logits, const Array& labels,
                                     const Array& loss, const Array& softmax) {
  const Stream stream = Use(device);
  const bool by_number = labels.element == Element::kInt64;
  WithFloating(loss.element, [&](auto t) {
    using T = decltype(t);
    CrossEntropy(stream, logits, by_number ? labels.as<const int64_t>() : nullptr,
                 by_number ? nullptr : labels.as<const T>(), loss.as<T>(), softmax.as<T>(),
                 fault(device));
  });
}

void KernelMath::SoftmaxCrossEntropyGradient(int device, const Array& labels, const Array& gradient,
                                             const Array& softmax) {
  const Stream stream = Use(device);
  const bool by_number = labels.element == Element::kInt64;
  WithFloating(softmax.element, [&](auto t) {
    using T = decltype(t);
    CrossEntropyGradient(stream, Rows(softmax), by_number ? labels.as<const int64_t>() : nullptr,
                         by_number ? nullptr : labels.as<const T>(), gradient.as<const T>(),
                         softmax.as<T>());
  });
}

void KernelMath::Normalize(int device, Norm norm, double epsilon, const Array& x, const Array& y) {
  const Stream stream = Use(device);
  WithFloating(y.element, [&](auto t) {
    NormalizeAs(stream, Rows(x), norm, epsilon, x.as<const decltype(t)>(), y.as<decltype(t)>());
  });
}

void KernelMath::NormalizeGradient(int device, Norm norm, double epsilon, const Array& x,
                                   const Array& gradient, const Array& dx) {
  const Stream stream = Use(device);
  WithFloating(dx.element, [&](auto t) {
    using T = decltype(t);
    NormalizeGradientAs(stream, Rows(x), norm, epsilon, x.as<const T>(), gradient.as<const T>(),
                        dx.as<T>());
  });
}

void KernelMath::ClipRows(int device, const Array& x, double max_norm, const Array& y) {
  const Stream stream = Use(device);
  WithFloating(y.element, [&](auto t) {
    ClipRowsAs(stream, x.dim(0), x.row_size(), max_norm, x.as<const decltype(t)>(),
               y.as<decltype(t)>());
  });
}

void KernelMath::ClipRowsGradient(int device, const Array& x, double max_norm,
                                  const Array& gradient, const Array& dx) {
  const Stream stream = Use(device);
  WithFloating(dx.element, [&](auto t) {
    using T = decltype(t);
    ClipRowsGradientAs(stream, x.dim(0), x.row_size(), max_norm, x.as<const T>(),
                       gradient.as<const T>(), dx.as<T>());
  });
}

void KernelMath::CombineRows(int device, const RowListArrays& lists, const Array& x,
                             const Array& y) {
  const Stream stream = Use(device);
  WithFloating(y.element, [&](auto t) {
    using T = decltype(t);
    CombineRowsAs(stream, Lists<T>(lists), y.dim(0), y.row_size(), x.as<const T>(), y.as<T>());
  });
}

void KernelMath::SpreadRows(int device, const RowListArrays& lists, const Array& y,
                            const Array& x) {
  const Stream stream = Use(device);
  WithFloating(x.element, [&](auto t) {
    using T = decltype(t);
    SpreadRowsAs(stream, Lists<T>(lists), y.dim(0), y.row_size(), y.as<const T>(), x.as<T>());
  });
}

}  // namespace divvy::cuda
