// Arithmetic on the elements of a tensor in place: what writes do on a parameter server, and what
// reductions do on a worker. CPU memory only. Every function is thread-safe and never blocks.
#ifndef DIVVY_KERNELS_ELEMENTS_H_
#define DIVVY_KERNELS_ELEMENTS_H_

#include <cstdint>

#include "kernels/write_op.h"
#include "tensor/dtype.h"

namespace divvy {

// Whether `op` is defined for elements of `dtype`. Numbers take every operation; bool takes
// kAssign and kScatterUpdate alone. False for kGradient.
bool TakesElements(WriteOp op, DType dtype);

// target[i] = target[i] op update[i] for n elements. Cannot fail: integers wrap around, and an
// integer divided by 0 becomes 0 (TensorFlow's process dies of it). Half and bfloat16 are computed
// in float and rounded. min and max keep the target where either is NaN.
// REQUIRES: TakesElements(op, dtype); the two do not overlap.
void ApplyElements(WriteOp op, DType dtype, void* target, const void* update, int64_t n);

// values[i] /= divisor for n floating elements, computed in double and rounded; halves are rounded
// to float32 first. Elements that are not floating are left as they are.
void DivideElements(DType dtype, void* values, int64_t n, double divisor);

}  // namespace divvy

#endif  // DIVVY_KERNELS_ELEMENTS_H_
