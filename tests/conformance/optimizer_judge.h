// Judges of schedules.json and optimizers.json.
#ifndef DIVVY_TESTS_CONFORMANCE_OPTIMIZER_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_OPTIMIZER_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Relative tolerance 1e-5, as the file's head says, and absolute 1e-8: TensorFlow evaluates cosines
// in float32.
Verdict JudgeSchedule(const Json& test_case);

// Parameter and slots after every step, in 1, 2 and 3 shards, which must agree to the bit. Relative
// tolerance 1e-5, absolute 2e-6, as the file's head says: 2e-5 for Ftrl's `linear`, and for the
// Adam and AdamW of Keras 2 and 3. Divvy's arithmetic is that of keras2_legacy (AdamW: keras2): a
// case of another family alone may disagree and is then deviating, also one with `divvy`, which is
// that family's own arithmetic on the rows named.
Verdict JudgeOptimizer(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_OPTIMIZER_JUDGE_H_
