// Judge of events/content.json.
#ifndef DIVVY_TESTS_CONFORMANCE_FILE_JUDGE_H_
#define DIVVY_TESTS_CONFORMANCE_FILE_JUDGE_H_

#include "tests/conformance/golden.h"

namespace divvy::conformance {

// Judges the point of this tag and step in the folder's event files. Exact. Written again by Divvy,
// its record has the same bytes.
Verdict JudgeEvent(const Json& test_case);

}  // namespace divvy::conformance

#endif  // DIVVY_TESTS_CONFORMANCE_FILE_JUDGE_H_
