// The arithmetic of RmsProp; see run.h.
#ifndef DIVVY_OPTIMIZERS_RMS_PROP_KERNEL_H_
#define DIVVY_OPTIMIZERS_RMS_PROP_KERNEL_H_

#include <algorithm>
#include <cmath>

#include "optimizers/optimizer.h"
#include "optimizers/run.h"

namespace divvy::internal {

// The form, and whether it is centered, are decided once for the loop and not for each element.
template <bool Momentum, bool Centered>
struct RmsPropKernel {
  const OptimizerStep& step;
  void operator()(const Run& run) const {
    float* __restrict w = run.values;
    float* __restrict r = run.slots[0];
    float* __restrict b = Momentum ? run.slots[1] : nullptr;
    float* __restrict a = Centered ? run.slots[Momentum ? 2 : 1] : nullptr;
    const float* __restrict g = run.gradient;
    const float one_minus_rho = 1.0f - step.rho, rate = step.learning_rate,
                momentum = step.momentum, epsilon = step.epsilon;
    for (int64_t i = 0; i < run.n; ++i) {
      r[i] += one_minus_rho * (g[i] * g[i] - r[i]);
      float d = r[i];
      if constexpr (Centered) {
        a[i] += one_minus_rho * (g[i] - a[i]);
        d = std::max(d - a[i] * a[i], 0.0f);  // a variance; rounding may take it below 0
      }
      if constexpr (Momentum) {
        b[i] = momentum * b[i] + rate * g[i] / std::sqrt(d + epsilon);
        w[i] -= b[i];
      } else {
        w[i] -= rate * g[i] / (std::sqrt(d) + epsilon);
      }
    }
  }
};

}  // namespace divvy::internal

#endif  // DIVVY_OPTIMIZERS_RMS_PROP_KERNEL_H_
