// The arithmetic of Adagrad and RowwiseAdagrad; see run.h.
#ifndef DIVVY_OPTIMIZERS_ADAGRAD_KERNEL_H_
#define DIVVY_OPTIMIZERS_ADAGRAD_KERNEL_H_

#include <cmath>

#include "optimizers/optimizer.h"
#include "optimizers/run.h"

namespace divvy::internal {

struct AdagradKernel {
  const OptimizerStep& step;
  void operator()(const Run& run) const {
    float* __restrict w = run.values;
    float* __restrict accumulator = run.slots[0];
    const float* __restrict g = run.gradient;
    const float rate = step.learning_rate, epsilon = step.epsilon;
    for (int64_t i = 0; i < run.n; ++i) {
      accumulator[i] += g[i] * g[i];
      w[i] -= rate * g[i] / (std::sqrt(accumulator[i]) + epsilon);
    }
  }
};

// For one row; `accumulator` is the row's only accumulator.
struct RowwiseAdagradKernel {
  const OptimizerStep& step;
  void operator()(float& accumulator, const Run& run) const {
    float* __restrict w = run.values;
    const float* __restrict g = run.gradient;
    const float squares = SumInLanes(g, run.n, [](float x) { return x * x; });
    accumulator += squares / static_cast<float>(run.n);
    const float rate = step.learning_rate / (std::sqrt(accumulator) + step.epsilon);
    for (int64_t i = 0; i < run.n; ++i) w[i] -= rate * g[i];
  }
};

}  // namespace divvy::internal

#endif  // DIVVY_OPTIMIZERS_ADAGRAD_KERNEL_H_
