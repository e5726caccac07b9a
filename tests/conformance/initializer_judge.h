// The judge of initializers.json.
#ifndef DIVVY_TESTS_CONFORMANCE_INITIALIZER_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_INITIALIZER_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// The law, not the numbers: constants and the identity exactly; limits to 1e-6 of themselves; mean
// and standard deviation within five times the error that a sample of this size has; orthogonality
// to 1e-5. And the same values whether made in 1, 2 or 3 shards.
Verdict JudgeInitializer(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_INITIALIZER_JUDGE_H_
