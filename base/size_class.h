// Size classes of cached memory: a block of a class can be used for every size of that class.
#ifndef DIVVY_BASE_SIZE_CLASS_H_
#define DIVVY_BASE_SIZE_CLASS_H_

#include <cstddef>

namespace divvy {

// The size class of `bytes`. Classes are the products of a power of two with `steps`, `steps` + 1,
// ... 2 * `steps`; the result is the smallest class that is at least `bytes` and at least
// `smallest`. There are `steps` classes in each doubling, so less than 1 / (`steps` + 1) of a block
// is unused. REQUIRES: `smallest` is `steps` times a power of two.
inline size_t SizeClass(size_t bytes, size_t smallest, size_t steps) {
  size_t step = smallest / steps;
  while (step * 2 * steps < bytes) step *= 2;
  size_t size = step * steps;
  while (size < bytes) size += step;
  return size;
}

}  // namespace divvy

#endif  // DIVVY_BASE_SIZE_CLASS_H_
