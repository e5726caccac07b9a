// The judge of initializers.json.
#ifndef DIVVY_TESTS_CONFORMANCE_INITIALIZER_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_INITIALIZER_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Judges the distribution, not the single numbers: constants and the identity exactly; limits to
// 1e-6 of their value; mean and standard deviation within five times the standard error of a sample
// of this size; orthogonality to 1e-5. The values must be the same in 1, 2 and 3 shards.
Verdict JudgeInitializer(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_INITIALIZER_JUDGE_H_
