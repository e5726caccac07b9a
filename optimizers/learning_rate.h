// Learning rates as functions of the step's number.
#ifndef DIVVY_OPTIMIZERS_LEARNING_RATE_H_
#define DIVVY_OPTIMIZERS_LEARNING_RATE_H_

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace divvy {

// A learning rate is a pure function of the step's number (from 0), so a retried step uses the rate
// of its first attempt. The formulas are those of tf.keras.optimizers.schedules; s below is the
// step, never below 0. Steps are those of the job, of all workers together, in the order in which
// they were begun. Plain values, checked by Validate.
//
//   Adam{CosineDecay{/*initial=*/1e-3, /*decay_steps=*/100'000, /*final_fraction=*/0.01,
//   /*warmup_steps=*/1'000}}

// initial * rate ^ (s / decay_steps); staircase: the quotient rounded down.
struct ExponentialDecay {
  double initial;
  int64_t decay_steps;
  double rate;
  bool staircase = false;
};
// initial / (1 + rate * s / decay_steps); staircase: the quotient rounded down.
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
// and Hutter, "SGDR", 2017, without restarts). With warmup_steps a straight line comes first: from
// 0 to initial, or (Keras) from initial to warmup_target, where the cosine then begins. A target
// without warmup_steps takes the initial rate's place, as in Keras.
struct CosineDecay {
  double initial;
  int64_t decay_steps;
  double final_fraction = 0;
  int64_t warmup_steps = 0;
  std::optional<double> warmup_target = {};
};
// values[i] while s <= boundaries[i]; the last value after the last boundary. One value more than
// boundaries.
struct PiecewiseConstant {
  std::vector<int64_t> boundaries;
  std::vector<double> values;
};

using LearningRate = std::variant<double, ExponentialDecay, InverseTimeDecay, PolynomialDecay,
                                  CosineDecay, PiecewiseConstant>;

// The rate at `step`; a negative step counts as 0. Pure; thread-safe. REQUIRES: Validate(rate) is
// OK.
double LearningRateAt(const LearningRate& rate, int64_t step);

// InvalidArgument, naming the field and the fix: a number that is not finite, decay_steps < 1,
// warmup_steps < 0, boundaries that do not rise, or not one value more than boundaries. Negative
// rates are let through: they ascend.
absl::Status Validate(const LearningRate& rate);

}  // namespace divvy

#endif  // DIVVY_OPTIMIZERS_LEARNING_RATE_H_
