// What a write other than a gradient does to elements.
#ifndef DIVVY_CLUSTER_ELEMENT_OPS_H_
#define DIVVY_CLUSTER_ELEMENT_OPS_H_

#include <cstdint>

#include "cluster/variable_spec.h"
#include "tensor/dtype.h"

namespace divvy {

// Whether `op` is defined for elements of `dtype`: every one for numbers, assign and scatter_update
// alone for bool. False for kGradient.
bool TakesElements(WriteOp op, DType dtype);

// target[i] = target[i] op update[i] for n elements. Cannot fail: integers wrap around, and an
// integer divided by 0 becomes 0 (TensorFlow's process dies of it). Half and bfloat16 are computed
// in float and rounded. min and max keep the target where either is NaN. REQUIRES: TakesElements;
// no overlap.
void ApplyElements(WriteOp op, DType dtype, void* target, const void* update, int64_t n);

}  // namespace divvy

#endif  // DIVVY_CLUSTER_ELEMENT_OPS_H_
