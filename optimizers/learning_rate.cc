#include "optimizers/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr double kPi = 3.14159265358979323846;

double Quotient(int64_t step, int64_t decay_steps, bool staircase) {
  const double quotient = static_cast<double>(step) / static_cast<double>(decay_steps);
  return staircase ? std::floor(quotient) : quotient;
}

double At(double rate, int64_t) { return rate; }

double At(const ExponentialDecay& decay, int64_t step) {
  return decay.initial * std::pow(decay.rate, Quotient(step, decay.decay_steps, decay.staircase));
}

double At(const InverseTimeDecay& decay, int64_t step) {
  return decay.initial / (1 + decay.rate * Quotient(step, decay.decay_steps, decay.staircase));
}

double At(const PolynomialDecay& decay, int64_t step) {
  const double remaining =
      1 - Quotient(std::min(step, decay.decay_steps), decay.decay_steps, false);
  return (decay.initial - decay.final_rate) * std::pow(remaining, decay.power) + decay.final_rate;
}

double At(const CosineDecay& decay, int64_t step) {
  const double top = decay.warmup_target.value_or(decay.initial);
  if (step < decay.warmup_steps) {
    const double bottom = decay.warmup_target ? decay.initial : 0;
    return bottom + (top - bottom) * Quotient(step, decay.warmup_steps, false);
  }
  const double done =
      Quotient(std::min(step - decay.warmup_steps, decay.decay_steps), decay.decay_steps, false);
  const double cosine = 0.5 * (1 + std::cos(kPi * done));
  return top * ((1 - decay.final_fraction) * cosine + decay.final_fraction);
}

double At(const PiecewiseConstant& pieces, int64_t step) {
  const auto piece = std::lower_bound(pieces.boundaries.begin(), pieces.boundaries.end(), step);
  return pieces.values[piece - pieces.boundaries.begin()];
}

absl::Status Finite(absl::string_view field, double value) {
  if (std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("learning rate: ", field, " is ", value, "; give a finite number"));
}

absl::Status AtLeast(absl::string_view field, int64_t value, int64_t least) {
  if (value >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("learning rate: ", field, " is ", value, "; give at least ", least));
}

absl::Status Check(double rate) { return Finite("the rate", rate); }

absl::Status Check(const ExponentialDecay& decay) {
  RETURN_IF_ERROR(Finite("initial", decay.initial));
  RETURN_IF_ERROR(Finite("rate", decay.rate));
  return AtLeast("decay_steps", decay.decay_steps, 1);
}

absl::Status Check(const InverseTimeDecay& decay) {
  RETURN_IF_ERROR(Finite("initial", decay.initial));
  RETURN_IF_ERROR(Finite("rate", decay.rate));
  return AtLeast("decay_steps", decay.decay_steps, 1);
}

absl::Status Check(const PolynomialDecay& decay) {
  RETURN_IF_ERROR(Finite("initial", decay.initial));
  RETURN_IF_ERROR(Finite("final_rate", decay.final_rate));
  RETURN_IF_ERROR(Finite("power", decay.power));
  return AtLeast("decay_steps", decay.decay_steps, 1);
}

absl::Status Check(const CosineDecay& decay) {
  RETURN_IF_ERROR(Finite("initial", decay.initial));
  RETURN_IF_ERROR(Finite("final_fraction", decay.final_fraction));
  RETURN_IF_ERROR(Finite("warmup_target", decay.warmup_target.value_or(0)));
  RETURN_IF_ERROR(AtLeast("warmup_steps", decay.warmup_steps, 0));
  return AtLeast("decay_steps", decay.decay_steps, 1);
}

absl::Status Check(const PiecewiseConstant& pieces) {
  if (pieces.values.size() != pieces.boundaries.size() + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("learning rate: ", pieces.boundaries.size(), " boundaries need ",
                     pieces.boundaries.size() + 1, " values, not ", pieces.values.size()));
  }
  if (std::adjacent_find(pieces.boundaries.begin(), pieces.boundaries.end(),
                         std::greater_equal<int64_t>()) != pieces.boundaries.end()) {
    return absl::InvalidArgumentError("learning rate: boundaries must rise");
  }
  for (const double value : pieces.values) RETURN_IF_ERROR(Finite("a value", value));
  return absl::OkStatus();
}

}  // namespace

double LearningRateAt(const LearningRate& rate, int64_t step) {
  return std::visit([step](const auto& law) { return At(law, std::max<int64_t>(step, 0)); }, rate);
}

absl::Status Validate(const LearningRate& rate) {
  return std::visit([](const auto& law) { return Check(law); }, rate);
}

}  // namespace divvy
