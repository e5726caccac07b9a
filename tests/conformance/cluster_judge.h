// Judge of tf_config.json.
#ifndef DIVVY_TESTS_CONFORMANCE_CLUSTER_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_CLUSTER_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// What the resolver reads from one TF_CONFIG, and whether a cluster with parameter servers can be
// so. Exact. Deviating: what Divvy takes otherwise on purpose and the case cannot say by a value of
// its own ("master" is the chief, null is an empty job), and what TensorFlow lets pass unread: a
// task that is no object, a negative index.
Verdict JudgeTfConfig(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_CLUSTER_JUDGE_H_
