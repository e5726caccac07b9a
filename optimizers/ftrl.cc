#include <cmath>

#include "optimizers/kernels.h"

namespace divvy::internal {
namespace {

// `power` is x -> x^-learning_rate_power.
template <typename Power>
void Ftrl(const OptimizerStep& step, const Run& run, Power power) {
  float* __restrict w = run.values;
  float* __restrict accumulator = run.slots[0];
  float* __restrict linear = run.slots[1];
  const float* __restrict g = run.gradient;
  const float inverse_rate = 1.0f / step.learning_rate, l1 = step.l1,
              shrinkage = 2.0f * step.l2_shrinkage;
  const float quadratic_l2 = 2.0f * step.l2 + step.beta * inverse_rate;
  for (int64_t i = 0; i < run.n; ++i) {
    const float grown = accumulator[i] + g[i] * g[i];
    const float new_power = power(grown);
    linear[i] +=
        g[i] + shrinkage * w[i] - (new_power - power(accumulator[i])) * inverse_rate * w[i];
    const float quadratic = new_power * inverse_rate + quadratic_l2;
    // Within [-l1, l1] the coefficient becomes exactly 0, which makes the model sparse.
    const float shrunk = (std::copysign(l1, linear[i]) - linear[i]) / quadratic;
    w[i] = std::fabs(linear[i]) > l1 ? shrunk : 0.0f;
    accumulator[i] = grown;
  }
}

}  // namespace

void FtrlRun(const OptimizerStep& step, const Run& run) {
  const float exponent = -step.learning_rate_power;
  if (exponent == 0.5f) return Ftrl(step, run, [](float x) { return std::sqrt(x); });
  Ftrl(step, run, [exponent](float x) { return std::pow(x, exponent); });
}

}  // namespace divvy::internal
