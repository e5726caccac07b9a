#include "base/status_macros.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

absl::StatusOr<int> Positive(int number) {
  if (number <= 0) return absl::OutOfRangeError("it is not positive");
  return number;
}

// A macro of a program: it expands to a single line.
#define DIVVY_TEST_TAKE_BOTH(a, b, first, second) \
  ASSIGN_OR_RETURN(a, Positive(first));           \
  ASSIGN_OR_RETURN(b, Positive(second))

absl::StatusOr<int> Sum(int first, int second) {
  DIVVY_TEST_TAKE_BOTH(const int a, const int b, first, second);
  return a + b;
}

TEST(StatusMacrosTest, SeveralAssignmentsStandInOneLine) {
  EXPECT_EQ(Sum(1, 2), absl::StatusOr<int>(3));
  EXPECT_EQ(Sum(0, 2).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(Sum(1, 0).status().code(), absl::StatusCode::kOutOfRange);
}

absl::Status SetTo(int& counter, int& calls) {
  ASSIGN_OR_RETURN(counter, Positive(++calls));
  RETURN_IF_ERROR(Positive(++calls));
  return absl::OkStatus();
}

TEST(StatusMacrosTest, TheExpressionIsEvaluatedOnce) {
  int counter = 0, calls = 0;
  EXPECT_TRUE(SetTo(counter, calls).ok());
  EXPECT_EQ(counter, 1);
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace divvy
