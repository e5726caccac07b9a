// The arithmetic of Sgd; see run.h.
#ifndef DIVVY_OPTIMIZERS_SGD_KERNEL_H_
#define DIVVY_OPTIMIZERS_SGD_KERNEL_H_

#include "optimizers/optimizer.h"
#include "optimizers/run.h"

namespace divvy::internal {

struct SgdKernel {
  const OptimizerStep& step;
  void operator()(const Run& run) const {
    float* __restrict w = run.values;
    const float* __restrict g = run.gradient;
    const float rate = step.learning_rate;
    for (int64_t i = 0; i < run.n; ++i) w[i] -= rate * g[i];
  }
};

}  // namespace divvy::internal

#endif  // DIVVY_OPTIMIZERS_SGD_KERNEL_H_
