// Learning rates as functions of the step number.
#ifndef DIVVY_OPTIMIZERS_LEARNING_RATE_H_
#define DIVVY_OPTIMIZERS_LEARNING_RATE_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace divvy {

// A learning rate is a pure function of the step number, which starts at 0. So a retried step uses
// the rate of its first attempt. The formulas are those of tf.keras.optimizers.schedules; s below
// is the step, never below 0. Steps are counted over the whole job, all workers together, in the
// order in which they started. Plain values; Validate checks them.
//
//   Adam{CosineDecay{/*initial=*/1e-3, /*decay_steps=*/100'000,
//                    /*final_fraction=*/0.01, /*warmup_steps=*/1'000}}

// initial * rate ^ (s / decay_steps); with staircase the quotient is rounded down.
struct ExponentialDecay {
  double initial;
  int64_t decay_steps;
  double rate;
  bool staircase = false;
};
// initial / (1 + rate * s / decay_steps); with staircase the quotient is rounded down.
struct InverseTimeDecay {
  double initial;
  int64_t decay_steps;
  double rate;
  bool staircase = false;
};
// (initial - final_rate) * (1 - min(s, decay_steps) / decay_steps) ^ power + final_rate.
struct PolynomialDecay {
  double initial;
  int64_t decay_steps;
  double final_rate = 1e-4;
  double power = 1;
};
// Half a cosine from the initial rate down to final_fraction of it, over decay_steps (Loshchilov
// and Hutter, "SGDR", 2017, without restarts).
//
// With warmup_steps a linear warmup comes first. Without warmup_target it goes from 0 to initial.
// With warmup_target it goes from initial to warmup_target (as in Keras), and the cosine starts
// from there. A warmup_target without warmup_steps replaces the initial rate, as in Keras.
struct CosineDecay {
  double initial;
  int64_t decay_steps;
  double final_fraction = 0;
  int64_t warmup_steps = 0;
  std::optional<double> warmup_target = {};
};
// values[i] for the first i with s <= boundaries[i]; the last value after the last boundary. There
// is one more value than there are boundaries.
struct PiecewiseConstant {
  std::vector<int64_t> boundaries;
  std::vector<double> values;
};

// A constant rate, or one of the schedules above.
using LearningRate = std::variant<double, ExponentialDecay, InverseTimeDecay, PolynomialDecay,
                                  CosineDecay, PiecewiseConstant>;

// The rate at `step`; a negative step counts as 0. Pure; thread-safe. REQUIRES: Validate(rate) is
// OK.
double LearningRateAt(const LearningRate& rate, int64_t step);

// InvalidArgument, naming the field and the fix: a number is not finite, decay_steps < 1,
// warmup_steps < 0, boundaries do not rise, or there is not exactly one value more than boundaries.
// Negative rates are allowed: they ascend.
absl::Status Validate(const LearningRate& rate);

}  // namespace divvy

#endif  // DIVVY_OPTIMIZERS_LEARNING_RATE_H_
