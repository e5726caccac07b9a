// The arithmetic of each optimizer on consecutive elements; apply.cc is built from it. Internal to
// this folder.
#ifndef DIVVY_OPTIMIZERS_KERNELS_H_
#define DIVVY_OPTIMIZERS_KERNELS_H_

#include <array>
#include <cstdint>

#include "optimizers/apply.h"
#include "optimizers/optimizer.h"

namespace divvy::internal {

// `n` elements of a parameter, of its gradient, and of its slots of kind kValues. `slots` is
// indexed in the order of SlotsOf; an entry is null if there is no such slot or it is of another
// kind. The arrays do not overlap.
struct Run {
  float* values;
  const float* gradient;
  std::array<float*, ParameterBlock::kMaxSlots> slots;
  int64_t n;
};

// The formulas are in optimizer.h. Each function is one loop, which the compiler vectorizes (see
// the options in the BUILD file: no errno, no traps). All compute in float32, element by element.
// REQUIRES: Validate(step) is OK.
void SgdRun(const OptimizerStep& step, const Run& run);
void MomentumRun(const OptimizerStep& step, const Run& run);
void AdagradRun(const OptimizerStep& step, const Run& run);
void RmsPropRun(const OptimizerStep& step, const Run& run);
void FtrlRun(const OptimizerStep& step, const Run& run);
// For one row; `accumulator` is the row's only accumulator.
void RowwiseAdagradRun(const OptimizerStep& step, float& accumulator, const Run& run);
// `corrected_rate` is AdamRate::At(t) for the t of these elements.
void AdamRun(const OptimizerStep& step, float corrected_rate, const Run& run);

// lr sqrt(1 - beta2^t) / (1 - beta1^t) for t >= 1. Computed in double, because both differences
// cancel for small t. Caches the result for the last t, since most rows share it. Not thread-safe.
class AdamRate {
 public:
  explicit AdamRate(const OptimizerStep& step) : step_(step) {}
  float At(int32_t t);

 private:
  const OptimizerStep& step_;
  int32_t t_ = 0;
  float rate_ = 0;
};

}  // namespace divvy::internal

#endif  // DIVVY_OPTIMIZERS_KERNELS_H_
