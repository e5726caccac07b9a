// The arithmetic of Ftrl and GroupFtrl; see run.h.
#ifndef DIVVY_OPTIMIZERS_FTRL_KERNEL_H_
#define DIVVY_OPTIMIZERS_FTRL_KERNEL_H_

#include <algorithm>
#include <cmath>

#include "optimizers/optimizer.h"
#include "optimizers/run.h"

namespace divvy::internal {

// x -> x^-learning_rate_power.
struct FtrlRootPower {  // of the default, -0.5
  explicit FtrlRootPower(const OptimizerStep&) {}
  float operator()(float x) const { return std::sqrt(x); }
};
struct FtrlAnyPower {
  explicit FtrlAnyPower(const OptimizerStep& step) : exponent(-step.learning_rate_power) {}
  float operator()(float x) const { return std::pow(x, exponent); }
  float exponent;
};

template <typename Power>
struct FtrlKernel {
  const OptimizerStep& step;
  void operator()(const Run& run) const {
    float* __restrict w = run.values;
    float* __restrict accumulator = run.slots[0];
    float* __restrict linear = run.slots[1];
    const float* __restrict g = run.gradient;
    const Power power(step);
    const float inverse_rate = 1.0f / step.learning_rate, l1 = step.l1,
                shrinkage = 2.0f * step.l2_shrinkage;
    const float quadratic_l2 = 2.0f * step.l2 + step.beta * inverse_rate;
    for (int64_t i = 0; i < run.n; ++i) {
      const float gradient = g[i], value = w[i], sum = accumulator[i];
      const float grown = sum + gradient * gradient;
      const float new_power = power(grown);
      const float pull = linear[i] + (gradient + shrinkage * value -
                                      (new_power - power(sum)) * inverse_rate * value);
      const float quadratic = new_power * inverse_rate + quadratic_l2;
      // l1 pulls the coefficient to exactly 0 within [-l1, l1]: that is what makes the model
      // sparse.
      const float shrunk = (std::copysign(l1, pull) - pull) / quadratic;
      w[i] = std::fabs(pull) > l1 ? shrunk : 0.0f;
      linear[i] = pull;
      accumulator[i] = grown;
    }
  }
};

// For one row, which is the group: the row that Ftrl computes, scaled down or set to 0.
template <typename Power>
struct GroupFtrlKernel {
  const OptimizerStep& step;
  void operator()(const Run& run) const {
    FtrlKernel<Power>{step}(run);
    if (step.l21 == 0) return;
    // Of what l1 leaves of z, which is z - clip(z, -l1, l1).
    const float norm = std::sqrt(SumInLanes(run.slots[1], run.n, [l1 = step.l1](float z) {
      const float left = std::max(std::fabs(z) - l1, 0.0f);
      return left * left;
    }));
    const float penalty = step.l21 * std::sqrt(static_cast<float>(run.n));
    float* __restrict w = run.values;
    if (norm <= penalty) {
      std::fill_n(w, run.n, 0.0f);
    } else {
      const float scale = 1.0f - penalty / norm;
      for (int64_t i = 0; i < run.n; ++i) w[i] *= scale;
    }
  }
};

}  // namespace divvy::internal

#endif  // DIVVY_OPTIMIZERS_FTRL_KERNEL_H_
