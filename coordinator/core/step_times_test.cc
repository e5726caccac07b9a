#include "coordinator/core/step_times.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

namespace divvy {
namespace {

void Note(StepTimes& times, int steps, absl::Duration took) {
  for (int i = 0; i < steps; ++i) times.Note("step", took);
}

TEST(StepTimesTest, NothingIsKnownOfAFunctionBeforeEightStepsHaveEnded) {
  StepTimes times;
  Note(times, 7, absl::Milliseconds(1));
  EXPECT_EQ(times.Expected("step"), absl::InfiniteDuration());
  EXPECT_EQ(times.Expected("other"), absl::InfiniteDuration());
  Note(times, 1, absl::Milliseconds(1));
  EXPECT_EQ(times.Expected("step"), absl::Milliseconds(1));
}

TEST(StepTimesTest, TheMeanFollowsStepsThatBecomeSlower) {
  StepTimes times;
  Note(times, 1000, absl::Milliseconds(1));
  EXPECT_EQ(times.Expected("step"), absl::Milliseconds(1));
  Note(times, 300, absl::Milliseconds(9));
  EXPECT_GT(times.Expected("step"), absl::Milliseconds(8));
}

TEST(StepTimesTest, TheLongestTimeThatAWorkerCanReportIsStillAMean) {
  StepTimes times;
  const absl::Duration longest = absl::Nanoseconds(std::numeric_limits<int64_t>::max());
  Note(times, 1000, longest);
  EXPECT_GT(times.Expected("step"), longest / 2);
  EXPECT_LT(times.Expected("step"), absl::InfiniteDuration());
}

}  // namespace
}  // namespace divvy
