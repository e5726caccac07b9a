// Judge of tf_config.json.
#ifndef DIVVY_TESTS_CONFORMANCE_CLUSTER_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_CLUSTER_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Judges what the resolver reads from a TF_CONFIG, and whether that is a valid cluster with
// parameter servers. Exact. Deviating are differences on purpose that a case cannot state by a
// value ("master" is the chief, null is an empty job), and texts that TensorFlow does not check: a
// task that is no object, a negative index.
Verdict JudgeTfConfig(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_CLUSTER_JUDGE_H_
