// Judges of reduce_gather.json, scatter.json and sharded_index.json: values across replicas, and
// rows across shards.
#ifndef DIVVY_TESTS_CONFORMANCE_DISTRIBUTION_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_DISTRIBUTION_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Judges Reduce and Gather of a strategy, and AllReduce and AllGather of replicas, which run on
// threads of their own. Relative and absolute tolerance 1e-6.
Verdict JudgeReduceGather(const Json& test_case);
// Judges scatters by a program into a variable of a cluster in this process, with a parameter
// server for each shard. A call that fails must leave the variable unchanged. Relative and absolute
// tolerance 1e-6.
Verdict JudgeScatter(const Json& test_case);
// Judges Python's indices. Rows are pulled from the shards as a worker pulls them. Exact.
Verdict JudgeShardedIndex(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_DISTRIBUTION_JUDGE_H_
