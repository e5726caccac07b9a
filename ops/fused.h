// Operations that do in one pass over memory what a program writes as two. For libraries above ops/
// that hold both ends of such a chain (a layer's bias and activation); values, gradients and errors
// are those of the two, but for how a narrow sum is rounded.
#ifndef DIVVY_OPS_FUSED_H_
#define DIVVY_OPS_FUSED_H_

#include "ops/math.h"
#include "ops/var.h"

namespace divvy::internal {

// op(a + b), broadcast as operator+, whose errors it has. One operation to the tape, which keeps
// the result and not the sum. The bits are those of the two operations, but for float16 and
// bfloat16: the sum is then not rounded by itself. REQUIRES: KeptForGradient(op) is kOutput.
Var AddThen(UnaryOp op, const Var& a, const Var& b);

}  // namespace divvy::internal

#endif  // DIVVY_OPS_FUSED_H_
