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

// Eight partial sums, which the compiler puts into one vector register. A single sum would have to
// be added in order.
inline float SumOfSquares(const float* g, int64_t n) {
  constexpr int kLanes = 8;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += g[i + lane] * g[i + lane];
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += g[i] * g[i];
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

// For one row; `accumulator` is the row's only accumulator.
struct RowwiseAdagradKernel {
  const OptimizerStep& step;
  void operator()(float& accumulator, const Run& run) const {
    float* __restrict w = run.values;
    const float* __restrict g = run.gradient;
    accumulator += SumOfSquares(g, run.n) / static_cast<float>(run.n);
    const float rate = step.learning_rate / (std::sqrt(accumulator) + step.epsilon);
    for (int64_t i = 0; i < run.n; ++i) w[i] -= rate * g[i];
  }
};

}  // namespace divvy::internal

#endif  // DIVVY_OPTIMIZERS_ADAGRAD_KERNEL_H_
