// Judges of schedules.json and optimizers.json.
#ifndef DIVVY_TESTS_CONFORMANCE_OPTIMIZER_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_OPTIMIZER_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Relative tolerance 1e-5, as in the file's head, and absolute 1e-8, because TensorFlow evaluates
// cosines in float32.
Verdict JudgeSchedule(const Json& test_case);

// Judges the parameter and the slots after every step, in 1, 2 and 3 shards, whose results must
// agree bit by bit. Tolerances as in the file's head: relative 1e-5, absolute 2e-6, but 2e-5 for
// Ftrl's `linear` and for Adam and AdamW of Keras 2 and 3.
//
// Divvy's arithmetic is that of keras2_legacy (AdamW: keras2). A case of another family may differ,
// and then counts as deviating. That holds also for such a case with `divvy`, which is that
// family's own arithmetic, applied to the named rows only.
Verdict JudgeOptimizer(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_OPTIMIZER_JUDGE_H_
