#include <cmath>

#include "optimizers/kernels.h"

namespace divvy::internal {

void AdagradRun(const OptimizerStep& step, const Run& run) {
  float* __restrict w = run.values;
  float* __restrict accumulator = run.slot0;
  const float* __restrict g = run.gradient;
  const float rate = step.learning_rate, epsilon = step.epsilon;
  for (int64_t i = 0; i < run.n; ++i) {
    accumulator[i] += g[i] * g[i];
    w[i] -= rate * g[i] / (std::sqrt(accumulator[i]) + epsilon);
  }
}

}  // namespace divvy::internal
