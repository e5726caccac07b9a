// A search for the element that is NaN or infinite.
#ifndef DIVVY_KERNELS_NOT_FINITE_H_
#define DIVVY_KERNELS_NOT_FINITE_H_

#include <cstdint>

#include "tensor/tensor.h"

namespace divvy {

// The index of the first element that is NaN or infinite; -1 if there is none, or if the elements
// are neither float32 nor float64. Reads at the speed of memory. Pure; thread-safe. REQUIRES: the
// tensor is on the CPU.
int64_t FirstNotFinite(const Tensor& tensor);

}  // namespace divvy

#endif  // DIVVY_KERNELS_NOT_FINITE_H_
