#include "protocol/trace_log.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TracedStep RunOf(uint64_t id, absl::Duration ended, absl::Duration total) {
  TracedStep run;
  run.total = total;
  run.step = EntryId(id);
  run.outcome = StepOutcome::kOk;
  run.ended = ended;
  return run;
}

std::vector<uint64_t> Ids(const std::vector<TracedStep>& runs) {
  std::vector<uint64_t> ids;
  for (const TracedStep& run : runs) ids.push_back(run.step.value());
  return ids;
}

// How many of `steps` steps, one each `gap`, are sampled.
int Sampled(int steps, absl::Duration gap) {
  TraceLog log;
  int sampled = 0;
  for (int i = 0; i < steps; ++i) sampled += log.AskFor(gap * i) == absl::ZeroDuration();
  return sampled;
}

TEST(TraceLogTest, RareStepsAreAllSampled) {
  EXPECT_EQ(Sampled(100, absl::Seconds(1)), 100);
  EXPECT_EQ(Sampled(100, absl::Milliseconds(100)), 100);
}

// 1,000 steps a second: ten a second, and each 64th.
TEST(TraceLogTest, OfManyStepsEach64thIsSampled) {
  EXPECT_EQ(Sampled(6400, absl::Milliseconds(1)), 100);
}

// 1,000,000 steps in a second.
TEST(TraceLogTest, NoMoreThan200ASecondAreSampled) {
  EXPECT_GE(Sampled(1'000'000, absl::Microseconds(1)), 190);
  EXPECT_LE(Sampled(1'000'000, absl::Microseconds(1)), 200);
}

TEST(TraceLogTest, EachStepIsSampledIfNoGapIsWanted) {
  TraceLog log(absl::ZeroDuration());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(log.AskFor(absl::Microseconds(i)), absl::ZeroDuration());
}

TEST(TraceLogTest, ASampledStepIsAmongTheLastAndAnotherIfItIsSlow) {
  TraceLog log;
  log.Add(RunOf(1, absl::Seconds(1), absl::Milliseconds(5)), absl::ZeroDuration());
  log.Add(RunOf(2, absl::Seconds(2), absl::Milliseconds(9)), absl::Nanoseconds(1));
  EXPECT_THAT(Ids(log.Last()), ElementsAre(1));
  EXPECT_THAT(Ids(log.Slowest(absl::Seconds(2))), ElementsAre(2, 1));
}

// The time of a lost run is that of the detection of the loss, which is longer than any step takes.
// 40 lost runs neither hide the slow steps nor raise what is asked of others.
TEST(TraceLogTest, StepsOfALostWorkerAreAmongTheLastOnly) {
  TraceLog log;
  ASSERT_EQ(log.AskFor(absl::Seconds(1)), absl::ZeroDuration());
  for (uint64_t id = 1; id <= 40; ++id) {
    TracedStep lost = RunOf(id, absl::Seconds(1), absl::Seconds(5));
    lost.outcome = std::nullopt;
    log.Add(lost, absl::Seconds(100));
  }
  log.Add(RunOf(99, absl::Seconds(1), absl::Milliseconds(30)), absl::Nanoseconds(1));
  EXPECT_EQ(log.Last().size(), 40u);
  EXPECT_THAT(Ids(log.Slowest(absl::Seconds(1))), ElementsAre(99));
  EXPECT_EQ(log.AskFor(absl::Seconds(1)), absl::Nanoseconds(1));
}

// A step that is not sampled tells its times if it takes longer than the fastest of the slowest of
// this minute.
TEST(TraceLogTest, WhatIsAskedOfOthersRisesWithTheSlowest) {
  TraceLog log;
  ASSERT_EQ(log.AskFor(absl::Seconds(1)), absl::ZeroDuration());
  EXPECT_EQ(log.AskFor(absl::Seconds(1)), absl::Nanoseconds(1));
  for (int i = 1; i <= 32; ++i)
    log.Add(RunOf(static_cast<uint64_t>(i), absl::Seconds(1), absl::Milliseconds(i)),
            absl::Nanoseconds(1));
  EXPECT_EQ(log.AskFor(absl::Seconds(1)), absl::Milliseconds(1));
  log.Add(RunOf(99, absl::Seconds(1), absl::Seconds(1)), absl::Nanoseconds(1));
  EXPECT_EQ(log.AskFor(absl::Seconds(1)), absl::Milliseconds(2));
  EXPECT_THAT(log.Last(), IsEmpty());
}

}  // namespace
}  // namespace divvy
