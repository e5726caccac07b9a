#include <cmath>

#include "optimizers/adam_kernel.h"

namespace divvy::internal {

float AdamRate::Compute() const {
  const double correction = std::sqrt(1.0 - std::pow(static_cast<double>(step_.beta2), t_)) /
                            (1.0 - std::pow(static_cast<double>(step_.beta1), t_));
  return static_cast<float>(step_.learning_rate * correction);
}

}  // namespace divvy::internal
