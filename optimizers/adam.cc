#include <cmath>

#include "optimizers/kernels.h"

namespace divvy::internal {

namespace {

// `Amsgrad`: whether vhat, the greatest v so far, is the divisor. It is a template parameter so
// that the loop does not decide it for each element.
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
    // The decay uses the old parameter. Without decay the product is exactly 0, or NaN if the
    // parameter is already infinite or NaN.
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
