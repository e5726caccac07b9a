// Judge of bundle/content.json.
#ifndef DIVVY_TESTS_CONFORMANCE_BUNDLE_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_BUNDLE_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// A checkpoint that TensorFlow has written: its tensors and no others, each slice exact and in its
// data file; and written again, its index has the same bytes.
Verdict JudgeBundle(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_BUNDLE_JUDGE_H_
