// The arithmetic of Momentum; see run.h.
#ifndef DIVVY_OPTIMIZERS_MOMENTUM_KERNEL_H_
#define DIVVY_OPTIMIZERS_MOMENTUM_KERNEL_H_

#include "optimizers/optimizer.h"
#include "optimizers/run.h"

namespace divvy::internal {

template <bool Nesterov>
struct MomentumKernel {
  const OptimizerStep& step;
  void operator()(const Run& run) const {
    float* __restrict w = run.values;
    float* __restrict m = run.slots[0];
    const float* __restrict g = run.gradient;
    const float rate = step.learning_rate, momentum = step.momentum;
    for (int64_t i = 0; i < run.n; ++i) {
      m[i] = momentum * m[i] - rate * g[i];
      w[i] += Nesterov ? momentum * m[i] - rate * g[i] : m[i];
    }
  }
};

}  // namespace divvy::internal

#endif  // DIVVY_OPTIMIZERS_MOMENTUM_KERNEL_H_
