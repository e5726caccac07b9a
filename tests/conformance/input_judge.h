// Judges of rebatch.json and tfrecord/content.json.
#ifndef DIVVY_TESTS_CONFORMANCE_INPUT_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_INPUT_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Exact. Batches that are alike are given both as a recipe that shows their size and as one that
// does not.
Verdict JudgeRebatch(const Json& test_case);

// The record in each of the folder's files, plain and compressed. Exact.
Verdict JudgeTfRecord(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_INPUT_JUDGE_H_
