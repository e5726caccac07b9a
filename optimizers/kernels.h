// One optimizer's arithmetic on consecutive elements: what apply.cc is made of. Internal to this
// folder.
#ifndef DIVVY_OPTIMIZERS_KERNELS_H_
#define DIVVY_OPTIMIZERS_KERNELS_H_

#include <array>
#include <cstdint>

#include "optimizers/apply.h"
#include "optimizers/optimizer.h"

namespace divvy::internal {

// `n` elements of a parameter, of its gradient and of its slots of kind kValues (by their place in
// SlotsOf; null where there is none or one of another kind). No two overlap.
struct Run {
  float* values;
  const float* gradient;
  std::array<float*, ParameterBlock::kMaxSlots> slots;
  int64_t n;
};

// The formulas stand in optimizer.h. Each is one loop that the compiler turns into vector code (the
// BUILD file's options: no errno, no traps), float32 throughout, element by element. REQUIRES:
// Validate(step) is OK.
void SgdRun(const OptimizerStep& step, const Run& run);
void MomentumRun(const OptimizerStep& step, const Run& run);
void AdagradRun(const OptimizerStep& step, const Run& run);
void RmsPropRun(const OptimizerStep& step, const Run& run);
void FtrlRun(const OptimizerStep& step, const Run& run);
// One row; `accumulator` is its number.
void RowwiseAdagradRun(const OptimizerStep& step, float& accumulator, const Run& run);
// `corrected_rate`: AdamRate below, for the t of these elements.
void AdamRun(const OptimizerStep& step, float corrected_rate, const Run& run);

// lr sqrt(1 - beta2^t) / (1 - beta1^t), t >= 1; in double, because for small t both differences
// cancel. Remembers the last t: rows mostly share it.
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
