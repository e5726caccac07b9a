// Judges of partitioners.json and div_split.json.
#ifndef DIVVY_TESTS_CONFORMANCE_PARTITIONER_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_PARTITIONER_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Exact. Shapes of more than 2^63 elements, which Divvy refuses, are deviating.
Verdict JudgePartitioner(const Json& test_case);
// Judges names, sizes and offsets of the shards, and the shard and row of each id. Exact.
Verdict JudgeDivSplit(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_PARTITIONER_JUDGE_H_
