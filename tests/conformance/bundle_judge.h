// Judge of bundle/content.json.
#ifndef DIVVY_TESTS_CONFORMANCE_BUNDLE_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_BUNDLE_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Judges a checkpoint that TensorFlow has written. It has exactly these tensors, and each slice is
// exact and in its data file. Written again by Divvy, its index has the same bytes.
Verdict JudgeBundle(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_BUNDLE_JUDGE_H_
