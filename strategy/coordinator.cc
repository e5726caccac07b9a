#include "strategy/coordinator.h"

#include "strategy/trainer_support.h"

namespace divvy::internal {

TrainerSupport& SupportOf(Coordinator& coordinator) { return coordinator.trainer_support(); }

}  // namespace divvy::internal
