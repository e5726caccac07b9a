#include <cmath>

#include "optimizers/kernels.h"

namespace divvy::internal {

void AdamRun(const OptimizerStep& step, float corrected_rate, const Run& run) {
  float* __restrict w = run.values;
  float* __restrict m = run.slot0;
  float* __restrict v = run.slot1;
  const float* __restrict g = run.gradient;
  const float one_minus_beta1 = 1.0f - step.beta1, one_minus_beta2 = 1.0f - step.beta2;
  const float epsilon = step.epsilon, decay = step.learning_rate * step.weight_decay;
  for (int64_t i = 0; i < run.n; ++i) {
    m[i] += one_minus_beta1 * (g[i] - m[i]);
    v[i] += one_minus_beta2 * (g[i] * g[i] - v[i]);
    // The decay is on the old parameter; without decay the product is an exact 0 (or NaN where the parameter is infinite or NaN already).
    w[i] = w[i] - decay * w[i] - corrected_rate * m[i] / (std::sqrt(v[i]) + epsilon);
  }
}

float AdamRate::At(int32_t t) {
  if (t == t_) return rate_;
  t_ = t;
  const double correction = std::sqrt(1.0 - std::pow(static_cast<double>(step_.beta2), t)) / (1.0 - std::pow(static_cast<double>(step_.beta1), t));
  return rate_ = static_cast<float>(step_.learning_rate * correction);
}

}  // namespace divvy::internal
