#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_backend.h"
#include "ops/cpu/lanes.h"
#include "ops/cpu/parallel.h"
#include "ops/data_errors.h"
#include "ops/functions.h"

namespace divvy::internal {
namespace {

// to[i] = exp(x[i] - max); returns their sum, and the maximum through `max`.
template <typename T>
T ShiftedExponentials(const T* __restrict x, T* __restrict to, int64_t n, T* max) {
  const T shift = *max = n == 0 ? T(0) : LargestOf(x, n);
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

// The loss of one example whose softmax, without the division by `sum`, is known. `label` is its
// label or null, then `probability` its labels.
template <typename T>
T LossOf(const T* x, int64_t classes, T max, T sum, const int64_t* label, const T* probability) {
  const T log_sum = std::log(sum);
  if (label != nullptr) return log_sum - (x[*label] - max);
  T loss = 0;
  for (int64_t j = 0; j < classes; ++j) {
    // Skips 0 times infinity, which would make the loss NaN.
    if (probability[j] != 0) loss += probability[j] * (log_sum - (x[j] - max));
  }
  return loss;
}

// InvalidArgument: a label is outside of its range.
template <typename T>
absl::Status CheckLabels(const Tensor& logits, const Tensor& labels) {
  const int64_t n = labels.shape().num_elements(), classes = logits.shape().dim(1);
  if (labels.dtype() != DType::kInt64) {
    const int64_t wrong = FirstOutsideUnit(labels.data_as<T>(), n);
    if (wrong < 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        ProbabilityOutOfRange(labels.data_as<T>()[wrong], wrong, logits.dtype(), logits.shape()));
  }
  const int64_t* const label = labels.data_as<int64_t>();
  const int64_t* const wrong =
      std::find_if(label, label + n, [classes](int64_t at) { return at < 0 || at >= classes; });
  if (wrong == label + n) return absl::OkStatus();
  return absl::InvalidArgumentError(
      LabelOutOfRange(*wrong, wrong - label, logits.dtype(), logits.shape()));
}

template <typename T>
absl::Status SoftmaxCrossEntropyAs(const Tensor& logits, const Tensor& labels, Tensor& loss,
                                   Tensor& softmax) {
  if (absl::Status status = CheckLabels<T>(logits, labels); !status.ok()) return status;
  const int64_t examples = logits.shape().dim(0), classes = logits.shape().dim(1);
  const bool by_number = labels.dtype() == DType::kInt64;
  const int64_t* const numbers = by_number ? labels.data_as<int64_t>() : nullptr;
  const T* const probabilities = by_number ? nullptr : labels.data_as<T>();
  const T* const x = logits.data_as<T>();
  T* const y = softmax.fresh_data<T>();
  T* const losses = loss.fresh_data<T>();
  InSlices<T>(examples, classes, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* row = x + i * classes;
      T max;
      const T sum = ShiftedExponentials(row, y + i * classes, classes, &max);
      losses[i] = LossOf(row, classes, max, sum, by_number ? numbers + i : nullptr,
                         by_number ? nullptr : probabilities + i * classes);
      Scale(y + i * classes, classes, 1 / sum);
    }
  });
  return absl::OkStatus();
}

template <typename T>
void SoftmaxCrossEntropyGradientAs(const Tensor& labels, const Tensor& gradient, Tensor& softmax) {
  const int64_t examples = softmax.shape().dim(0), classes = softmax.shape().dim(1);
  const bool by_number = labels.dtype() == DType::kInt64;
  const int64_t* const numbers = by_number ? labels.data_as<int64_t>() : nullptr;
  const T* const probabilities = by_number ? nullptr : labels.data_as<T>();
  const T* const gradients = gradient.data_as<T>();
  T* const all = softmax.fresh_data<T>();
  InSlices<T>(examples, classes, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      T* __restrict y = all + i * classes;
      const T g = gradients[i];
      if (by_number) {
        y[numbers[i]] -= 1;
        Scale(y, classes, g);
        continue;
      }
      const T* __restrict probability = probabilities + i * classes;
      // The sum is 1 for probabilities. The derivative also holds for other weights.
      T total = 0;
      for (int64_t j = 0; j < classes; ++j) total += probability[j];
      for (int64_t j = 0; j < classes; ++j) y[j] = g * (total * y[j] - probability[j]);
    }
  });
}

}  // namespace

void CpuBackend::Softmax(const Tensor& x, Tensor& y) const {
  OnFloating(x.dtype(), [&](auto t) {
    using T = decltype(t);
    const Rows extent(x.shape());
    const int64_t width = extent.width;
    const T* const from = x.data_as<T>();
    T* const to = y.fresh_data<T>();
    InSlices<T>(extent.rows, width, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        T max;
        const T sum = ShiftedExponentials(from + i * width, to + i * width, width, &max);
        Scale(to + i * width, width, 1 / sum);
      }
    });
  });
}

void CpuBackend::SoftmaxGradient(const Tensor& y, const Tensor& gradient, Tensor& dx) const {
  OnFloating(y.dtype(), [&](auto t) {
    using T = decltype(t);
    const Rows extent(y.shape());
    const int64_t width = extent.width;
    const T* const softmax = y.data_as<T>();
    const T* const gradients = gradient.data_as<T>();
    T* const to = dx.fresh_data<T>();
    InSlices<T>(extent.rows, width, [=](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T* __restrict p = softmax + i * width;
        const T* __restrict g = gradients + i * width;
        T* __restrict out = to + i * width;
        const T dot = static_cast<T>(Dot(p, g, width));
        for (int64_t j = 0; j < width; ++j) out[j] = p[j] * (g[j] - dot);
      }
    });
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
    const T* const all_x = logits.data_as<T>();
    const T* const all_z = labels.data_as<T>();
    T* const all_to = loss.fresh_data<T>();
    const int64_t n = logits.shape().num_elements();
    const int64_t wrong = FirstOutsideUnit(all_z, n);
    if (wrong >= 0)
      status = absl::InvalidArgumentError(
          LabelNotInUnit("SigmoidCrossEntropy", all_z[wrong], wrong, labels.shape()));
    // Adds the logarithm last, because it may be far smaller than x, and x and x z may cancel
    // before it.
    InSlices<T>(n, 1, [=](int64_t begin, int64_t end) {
      const T* __restrict x = all_x;
      const T* __restrict z = all_z;
      T* __restrict to = all_to;
      for (int64_t i = begin; i < end; ++i)
        to[i] = std::max(x[i], T(0)) - x[i] * z[i] + Log1pOfUnit(ExpOf(-std::abs(x[i])));
    });
  });
  return status;
}

void CpuBackend::SigmoidCrossEntropyGradient(const Tensor& logits, const Tensor& labels,
                                             const Tensor& gradient, Tensor& dx) const {
  OnFloating(logits.dtype(), [&](auto t) {
    using T = decltype(t);
    const T* const all_x = logits.data_as<T>();
    const T* const all_z = labels.data_as<T>();
    const T* const all_g = gradient.data_as<T>();
    T* const all_to = dx.fresh_data<T>();
    InSlices<T>(logits.shape().num_elements(), 1, [=](int64_t begin, int64_t end) {
      const T* __restrict x = all_x;
      const T* __restrict z = all_z;
      const T* __restrict g = all_g;
      T* __restrict to = all_to;
      for (int64_t i = begin; i < end; ++i) to[i] = g[i] * (SigmoidOf(x[i]) - z[i]);
    });
  });
}

}  // namespace divvy::internal
