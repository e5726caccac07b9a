// Judges of reduce_gather.json, scatter.json and sharded_index.json: values across replicas, and
// rows across shards.
#ifndef DIVVY_TESTS_CONFORMANCE_DISTRIBUTION_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_DISTRIBUTION_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Reduce and Gather by a strategy, AllReduce and AllGather by replicas on threads of their own.
// Relative and absolute 1e-6.
Verdict JudgeReduceGather(const Json& test_case);
// Scatters by a program into a variable of a cluster in this process with a parameter server for
// each shard; a call that fails must leave it as it was. Relative and absolute 1e-6.
Verdict JudgeScatter(const Json& test_case);
// Python's indices, the rows pulled from the shards as a worker pulls them. Exact.
Verdict JudgeShardedIndex(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_DISTRIBUTION_JUDGE_H_
