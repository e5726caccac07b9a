// The sizes in which memory is kept for later use: a block of one class serves every size of that
// class.
#ifndef DIVVY_OPS_CUDA_SIZE_CLASS_H_
#define DIVVY_OPS_CUDA_SIZE_CLASS_H_

#include <cstddef>

namespace divvy::cuda {

// The smallest of `steps`, `steps` + 1, ... 2 * `steps` times a power of two that holds so many
// bytes, and no less than `smallest`. A class has `steps` others in each doubling, so that less
// than 1 / (`steps` + 1) of a block is unused. REQUIRES: `smallest` is `steps` times a power of
// two.
inline size_t SizeClass(size_t bytes, size_t smallest, size_t steps) {
  size_t step = smallest / steps;
  while (step * 2 * steps < bytes) step *= 2;
  size_t size = step * steps;
  while (size < bytes) size += step;
  return size;
}

}  // namespace divvy::cuda

#endif  // DIVVY_OPS_CUDA_SIZE_CLASS_H_
