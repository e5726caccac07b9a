#include "optimizers/kernels.h"

namespace divvy::internal {

void SgdRun(const OptimizerStep& step, const Run& run) {
  float* __restrict w = run.values;
  const float* __restrict g = run.gradient;
  const float rate = step.learning_rate;
  for (int64_t i = 0; i < run.n; ++i) w[i] -= rate * g[i];
}

}  // namespace divvy::internal
