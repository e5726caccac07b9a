#include "wire/trace.h"

#include <string>

#include "gtest/gtest.h"

namespace divvy::wire {
namespace {

TracedStep RunOf(uint64_t id, absl::Duration ended) {
  TracedStep run;
  run.step = EntryId(id);
  run.attempt = 2;
  run.function = "train";
  run.worker = 3;
  run.outcome = StepOutcome::kFailed;
  run.ended = ended;
  run.queued = absl::Milliseconds(4);
  run.total = absl::Milliseconds(50);
  return run;
}

v1::GetTracesReply Told(const TraceLog& log) {
  return ToProto(log, JobId(9), absl::Seconds(12), absl::FromUnixSeconds(1000));
}

TEST(TraceTest, AStepIsToldWithTheWallTimeOfItsEnd) {
  TraceLog log;
  TracedStep run = RunOf(5, absl::Seconds(10));
  run.ordinal = 130;
  StepTrace& parts = run.parts.emplace();
  parts.reported = absl::Milliseconds(40);
  parts.calls.push_back(
      {/*commit=*/true, 1, absl::Milliseconds(2), absl::Milliseconds(8), absl::Milliseconds(3), 1});
  log.Add(run, absl::ZeroDuration());
  const v1::GetTracesReply reply = Told(log);
  EXPECT_EQ(reply.job_id(), 9u);
  ASSERT_EQ(reply.last_size(), 1);
  const v1::TracedStep& step = reply.last(0);
  EXPECT_EQ(step.step(), 5u);
  EXPECT_EQ(step.attempt(), 2u);
  EXPECT_EQ(step.ordinal(), 130);
  EXPECT_EQ(step.function(), "train");
  EXPECT_EQ(step.worker(), 3);
  EXPECT_EQ(step.outcome(), v1::Report::FAILED);
  EXPECT_EQ(step.ended_ns(), int64_t{998} * 1'000'000'000);
  EXPECT_EQ(step.queued_ns(), 4'000'000);
  EXPECT_EQ(step.total_ns(), 50'000'000);
  EXPECT_EQ(step.parts().reported_ns(), 40'000'000);
  ASSERT_EQ(step.parts().calls_size(), 1);
  EXPECT_TRUE(step.parts().calls(0).commit());
  EXPECT_EQ(step.parts().calls(0).served_ns(), 3'000'000);
  ASSERT_EQ(reply.slowest_size(), 1);
  EXPECT_EQ(reply.slowest(0).step(), 5u);
}

TEST(TraceTest, WhatIsNotKnownIsAbsent) {
  TraceLog log;
  TracedStep lost = RunOf(5, absl::Seconds(10));
  lost.outcome = std::nullopt;
  log.Add(lost, absl::ZeroDuration());
  const v1::TracedStep step = Told(log).last(0);
  EXPECT_EQ(step.outcome(), v1::Report::OUTCOME_NONE);
  EXPECT_FALSE(step.has_ordinal());
  EXPECT_FALSE(step.has_parts());
}

// The program chooses the names of functions, and a string of a message is UTF-8.
TEST(TraceTest, ANameIsText) {
  TraceLog log;
  TracedStep run = RunOf(5, absl::Seconds(10));
  run.function = "odd \x1b[31m \xff name";
  log.Add(run, absl::ZeroDuration());
  EXPECT_EQ(Told(log).last(0).function(), "odd \\x1b[31m \\xff name");
  std::string bytes;
  EXPECT_TRUE(Told(log).SerializeToString(&bytes));
}

}  // namespace
}  // namespace divvy::wire
