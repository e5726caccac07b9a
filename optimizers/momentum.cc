#include "optimizers/kernels.h"

namespace divvy::internal {

void MomentumRun(const OptimizerStep& step, const Run& run) {
  float* __restrict w = run.values;
  float* __restrict m = run.slots[0];
  const float* __restrict g = run.gradient;
  const float rate = step.learning_rate, momentum = step.momentum;
  if (step.nesterov) {
    for (int64_t i = 0; i < run.n; ++i) {
      m[i] = momentum * m[i] - rate * g[i];
      w[i] += momentum * m[i] - rate * g[i];
    }
    return;
  }
  for (int64_t i = 0; i < run.n; ++i) {
    m[i] = momentum * m[i] - rate * g[i];
    w[i] += m[i];
  }
}

}  // namespace divvy::internal
