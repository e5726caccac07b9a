#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_backend.h"
#include "ops/data_errors.h"
#include "ops/functions.h"

namespace divvy::internal {
namespace {

// to[i] = exp(x[i] - max); returns their sum, and the maximum through `max`.
template <typename T>
T ShiftedExponentials(const T* x, T* to, int64_t n, T* max) {
  *max = n == 0 ? T(0) : *std::max_element(x, x + n);
  const T shift = *max;
  for (int64_t i = 0; i < n; ++i) to[i] = ExpOf(x[i] - shift);
  return static_cast<T>(SumOf(to, n));
}

template <typename T>
void Scale(T* x, int64_t n, T factor) {
  for (int64_t i = 0; i < n; ++i) x[i] *= factor;
}

struct Rows {
  int64_t rows;
  int64_t width;
  explicit Rows(const Shape& shape) : width(shape.dim(-1)) {
    rows = width == 0 ? 0 : shape.num_elements() / width;
  }
};

template <typename T>
absl::Status SoftmaxCrossEntropyAs(const Tensor& logits, const Tensor& labels, Tensor& loss,
                                   Tensor& softmax) {
  const int64_t examples = logits.shape().dim(0), classes = logits.shape().dim(1);
  const bool by_number = labels.dtype() == DType::kInt64;
  const int64_t wrong = by_number ? -1 : FirstOutsideUnit(labels.data_as<T>(), examples * classes);
  if (wrong >= 0)
    return absl::InvalidArgumentError(
        ProbabilityOutOfRange(labels.data_as<T>()[wrong], wrong, logits.dtype(), logits.shape()));
  T* const losses = loss.fresh_data<T>();
  for (int64_t i = 0; i < examples; ++i) {
    const T* x = logits.data_as<T>() + i * classes;
    T* y = softmax.fresh_data<T>() + i * classes;
    T max;
    const T sum = ShiftedExponentials(x, y, classes, &max);
    const T log_sum = std::log(sum);
    if (by_number) {
      const int64_t label = labels.data_as<int64_t>()[i];
      if (label < 0 || label >= classes)
        return absl::InvalidArgumentError(
            LabelOutOfRange(label, i, logits.dtype(), logits.shape()));
      losses[i] = log_sum - (x[label] - max);
    } else {
      const T* probability = labels.data_as<T>() + i * classes;
      losses[i] = 0;
      for (int64_t j = 0; j < classes; ++j) {
        // Skips 0 times infinity, which would make the loss NaN.
        if (probability[j] != 0) losses[i] += probability[j] * (log_sum - (x[j] - max));
      }
    }
    Scale(y, classes, 1 / sum);
  }
  return absl::OkStatus();
}

template <typename T>
void SoftmaxCrossEntropyGradientAs(const Tensor& labels, const Tensor& gradient, Tensor& softmax) {
  const int64_t examples = softmax.shape().dim(0), classes = softmax.shape().dim(1);
  for (int64_t i = 0; i < examples; ++i) {
    T* y = softmax.fresh_data<T>() + i * classes;
    const T g = gradient.data_as<T>()[i];
    if (labels.dtype() == DType::kInt64) {
      y[labels.data_as<int64_t>()[i]] -= 1;
      Scale(y, classes, g);
      continue;
    }
    const T* probability = labels.data_as<T>() + i * classes;
    // The sum is 1 for probabilities. The derivative also holds for other weights.
    T total = 0;
    for (int64_t j = 0; j < classes; ++j) total += probability[j];
    for (int64_t j = 0; j < classes; ++j) y[j] = g * (total * y[j] - probability[j]);
  }
}

}  // namespace

void CpuBackend::Softmax(const Tensor& x, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const Rows extent(x.shape());
    for (int64_t i = 0; i < extent.rows; ++i) {
      T* to = y.fresh_data<T>() + i * extent.width;
      T max;
      Scale(to, extent.width,
            1 / ShiftedExponentials(x.data_as<T>() + i * extent.width, to, extent.width, &max));
    }
  });
}

void CpuBackend::SoftmaxGradient(const Tensor& y, const Tensor& gradient, Tensor& dx) const {
  OnFloating(y.dtype(), [&](auto t) {
    using T = decltype(t);
    const Rows extent(y.shape());
    for (int64_t i = 0; i < extent.rows; ++i) {
      const T* p = y.data_as<T>() + i * extent.width;
      const T* g = gradient.data_as<T>() + i * extent.width;
      T* to = dx.fresh_data<T>() + i * extent.width;
      T dot = 0;
      for (int64_t j = 0; j < extent.width; ++j) dot += p[j] * g[j];
      for (int64_t j = 0; j < extent.width; ++j) to[j] = p[j] * (g[j] - dot);
    }
  });
}

absl::Status CpuBackend::SoftmaxCrossEntropy(const Tensor& logits, const Tensor& labels,
                                             Tensor& loss, Tensor& softmax) const {
  absl::Status status;
  OnFloating(logits.dtype(), [&](auto t) {
    status = SoftmaxCrossEntropyAs<decltype(t)>(logits, labels, loss, softmax);
  });
  return status;
}

void CpuBackend::SoftmaxCrossEntropyGradient(const Tensor& labels, const Tensor& gradient,
                                             Tensor& softmax) const {
  OnFloating(softmax.dtype(), [&](auto t) {
    SoftmaxCrossEntropyGradientAs<decltype(t)>(labels, gradient, softmax);
  });
}

absl::Status CpuBackend::SigmoidCrossEntropy(const Tensor& logits, const Tensor& labels,
                                             Tensor& loss) const {
  absl::Status status;
  OnFloating(logits.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* x = logits.data_as<T>();
    const T* z = labels.data_as<T>();
    T* to = loss.fresh_data<T>();
    const int64_t n = logits.shape().num_elements();
    const int64_t wrong = FirstOutsideUnit(z, n);
    if (wrong >= 0)
      status = absl::InvalidArgumentError(
          LabelNotInUnit("SigmoidCrossEntropy", z[wrong], wrong, labels.shape()));
    // Adds the logarithm last, because it may be far smaller than x, and x and x z may cancel
    // before it.
    for (int64_t i = 0; i < n; ++i)
      to[i] = std::max(x[i], T(0)) - x[i] * z[i] + Log1pOfUnit(ExpOf(-std::abs(x[i])));
  });
  return status;
}

void CpuBackend::SigmoidCrossEntropyGradient(const Tensor& logits, const Tensor& labels,
                                             const Tensor& gradient, Tensor& dx) const {
  Unary(UnaryOp::kSigmoid, logits, dx);
  OnFloating(logits.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* z = labels.data_as<T>();
    const T* g = gradient.data_as<T>();
    T* to = dx.fresh_data<T>();
    const int64_t n = logits.shape().num_elements();
    for (int64_t i = 0; i < n; ++i) to[i] = g[i] * (to[i] - z[i]);
  });
}

}  // namespace divvy::internal
