// Judges of rebatch.json and tfrecord/content.json.
#ifndef DIVVY_TESTS_CONFORMANCE_INPUT_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_INPUT_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Exact. Batches of one size are made both by a recipe that shows their size and by one that does
// not.
Verdict JudgeRebatch(const Json& test_case);

// Judges a record in each of the folder's files, plain and compressed. Exact.
Verdict JudgeTfRecord(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_INPUT_JUDGE_H_
