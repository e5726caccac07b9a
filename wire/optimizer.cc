#include "wire/optimizer.h"

#include "wire/fields.h"

namespace divvy::wire {

DIVVY_WIRE_CONVERSIONS(LearningRate)
DIVVY_WIRE_CONVERSIONS(Optimizer)
DIVVY_WIRE_CONVERSIONS(OptimizerStep)

}  // namespace divvy::wire
