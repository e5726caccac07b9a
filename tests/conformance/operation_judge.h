// Judges of losses_grads.json and embedding.json. Both use a tape that computes on the binary's
// test device (ops/testing/place.h).
#ifndef DIVVY_TESTS_CONFORMANCE_OPERATION_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_OPERATION_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Judges the output, and the gradient of sum(output * upstream) with respect to each input that has
// one. Relative tolerance 1e-5, absolute 1e-6.
Verdict JudgeOperation(const Json& test_case);
// Judges Lookup and LookupSparse, plain and safe. Relative and absolute tolerance 1e-6.
Verdict JudgeLookup(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_OPERATION_JUDGE_H_
