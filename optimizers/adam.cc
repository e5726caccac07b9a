#include <cmath>

#include "optimizers/kernels.h"

namespace divvy::internal {

namespace {

// `Amsgrad`: whether vhat divides, the greatest v so far; decided once for the loop, not for each
// element.
template <bool Amsgrad>
void Adam(const OptimizerStep& step, float corrected_rate, const Run& run) {
  float* __restrict w = run.values;
  float* __restrict m = run.slots[0];
  float* __restrict v = run.slots[1];
  float* __restrict vhat = run.slots[3];  // [2] is t
  const float* __restrict g = run.gradient;
  const float one_minus_beta1 = 1.0f - step.beta1, one_minus_beta2 = 1.0f - step.beta2;
  const float epsilon = step.epsilon, decay = step.learning_rate * step.weight_decay;
  for (int64_t i = 0; i < run.n; ++i) {
    m[i] += one_minus_beta1 * (g[i] - m[i]);
    v[i] += one_minus_beta2 * (g[i] * g[i] - v[i]);
    // The decay is on the old parameter; without decay the product is an exact 0 (or NaN where the
    // parameter is infinite or NaN already).
    float second_moment = v[i];
    if constexpr (Amsgrad) second_moment = vhat[i] = vhat[i] < v[i] ? v[i] : vhat[i];
    w[i] = w[i] - decay * w[i] - corrected_rate * m[i] / (std::sqrt(second_moment) + epsilon);
  }
}

}  // namespace

void AdamRun(const OptimizerStep& step, float corrected_rate, const Run& run) {
  return step.amsgrad ? Adam<true>(step, corrected_rate, run)
                      : Adam<false>(step, corrected_rate, run);
}

float AdamRate::At(int32_t t) {
  if (t == t_) return rate_;
  t_ = t;
  const double correction = std::sqrt(1.0 - std::pow(static_cast<double>(step_.beta2), t)) /
                            (1.0 - std::pow(static_cast<double>(step_.beta1), t));
  return rate_ = static_cast<float>(step_.learning_rate * correction);
}

}  // namespace divvy::internal
