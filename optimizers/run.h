// What the kernels of the optimizers (sgd_kernel.h, ...) compute on. Internal to this folder.
//
// Each kernel is an object whose operator() is one loop over consecutive elements, which the
// compiler vectorizes for each level of base/vector_level.h (see the options in the BUILD file: no
// errno, no traps, no contraction). apply.cc calls the kernels where they are inlined. The formulas
// are in optimizer.h. All compute in float32, element by element. A kernel keeps a reference to its
// step. REQUIRES of each: Validate(step) is OK.
#ifndef DIVVY_OPTIMIZERS_RUN_H_
#define DIVVY_OPTIMIZERS_RUN_H_

#include <array>
#include <cstdint>

#include "optimizers/apply.h"

namespace divvy::internal {

// `n` elements of a parameter, of its gradient, and of its slots of kind kValues. `slots` is
// indexed as SlotsOf; an entry is null if there is no such slot or it is of another kind. The
// arrays do not overlap.
struct Run {
  float* values;
  const float* gradient;
  std::array<float*, ParameterBlock::kMaxSlots> slots;
  int64_t n;
};

// The sum of term(x[i]). Eight partial sums, which the compiler puts into one vector register. A
// single sum would have to be added in order.
template <typename Term>
float SumInLanes(const float* x, int64_t n, const Term& term) {
  constexpr int kLanes = 8;
  float lanes[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] += term(x[i + lane]);
  }
  for (int lane = 0; i < n; ++i, ++lane) lanes[lane] += term(x[i]);
  float sum = 0;
  for (const float lane : lanes) sum += lane;
  return sum;
}

}  // namespace divvy::internal

#endif  // DIVVY_OPTIMIZERS_RUN_H_
