// The arithmetic of Adam; see run.h.
#ifndef DIVVY_OPTIMIZERS_ADAM_KERNEL_H_
#define DIVVY_OPTIMIZERS_ADAM_KERNEL_H_

#include <cmath>

#include "optimizers/optimizer.h"
#include "optimizers/run.h"

namespace divvy::internal {

// `Amsgrad`: whether vhat, the greatest v so far, is the divisor.
template <bool Amsgrad>
struct AdamKernel {
  const OptimizerStep& step;
  // `corrected_rate` is AdamRate::At(t) for the t of these elements.
  void operator()(float corrected_rate, const Run& run) const {
    float* __restrict w = run.values;
    float* __restrict m = run.slots[0];
    float* __restrict v = run.slots[1];
    float* __restrict vhat = run.slots[3];  // [2] is t
    const float* __restrict g = run.gradient;
    const float one_minus_beta1 = 1.0f - step.beta1, one_minus_beta2 = 1.0f - step.beta2;
    const float epsilon = step.epsilon, decay = step.learning_rate * step.weight_decay;
    for (int64_t i = 0; i < run.n; ++i) {
      const float gradient = g[i], value = w[i];
      const float mean = m[i] + one_minus_beta1 * (gradient - m[i]);
      const float squares = v[i] + one_minus_beta2 * (gradient * gradient - v[i]);
      m[i] = mean;
      v[i] = squares;
      float divisor = squares;
      if constexpr (Amsgrad) vhat[i] = divisor = vhat[i] < squares ? squares : vhat[i];
      // The decay uses the old parameter. Without decay the product is exactly 0, or NaN if the
      // parameter is already infinite or NaN.
      w[i] = value - decay * value - corrected_rate * mean / (std::sqrt(divisor) + epsilon);
    }
  }
};

// lr sqrt(1 - beta2^t) / (1 - beta1^t) for t >= 1. Computed in double, because both differences
// cancel for small t. Caches the result for the last t, since most rows share it. Not thread-safe.
class AdamRate {
 public:
  explicit AdamRate(const OptimizerStep& step) : step_(step) {}
  float At(int32_t t) {
    if (t != t_) {
      t_ = t;
      rate_ = Compute();
    }
    return rate_;
  }

 private:
  float Compute() const;

  const OptimizerStep& step_;
  int32_t t_ = 0;
  float rate_ = 0;
};

}  // namespace divvy::internal

#endif  // DIVVY_OPTIMIZERS_ADAM_KERNEL_H_
