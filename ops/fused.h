// Fused operations, which make one pass over memory for what a program writes as two operations.
// For libraries above ops/ that know both (a layer's bias and activation). Values, gradients and
// errors are those of the two operations, except for the rounding of 16-bit sums.
#ifndef DIVVY_OPS_FUSED_H_
#define DIVVY_OPS_FUSED_H_

#include "ops/math.h"
#include "ops/var.h"

namespace divvy::internal {

// op(a + b), with the broadcasting and the errors of operator+. The tape records one operation and
// keeps its result, not the sum. The bits are those of the two operations, except for float16 and
// bfloat16, whose sum is not rounded before `op`. REQUIRES: KeptForGradient(op) is kOutput.
Var AddThen(UnaryOp op, const Var& a, const Var& b);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_FUSED_H_
