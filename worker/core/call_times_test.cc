#include "worker/core/call_times.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

CallTimes::Call Call(int ps, int64_t since_ms, int64_t took_ms) {
  CallTimes::Call call;
  call.ps = ps;
  call.since = absl::Milliseconds(since_ms);
  call.took = absl::Milliseconds(took_ms);
  return call;
}

TEST(CallTimesTest, CallsAreInTheOrderInWhichTheyWereSent) {
  CallTimes times;
  times.Add(Call(1, 130, 5));
  times.Add(Call(0, 110, 50));
  const auto calls = times.From(absl::Milliseconds(100));
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].ps, 0);
  EXPECT_EQ(calls[0].since, absl::Milliseconds(10));
  EXPECT_EQ(calls[1].ps, 1);
  EXPECT_EQ(calls[1].since, absl::Milliseconds(30));
  EXPECT_EQ(times.left_out(), 0u);
}

TEST(CallTimesTest, TheLongestOfManyAreKept) {
  CallTimes times;
  for (int i = 0; i < 100; ++i) times.Add(Call(i, i, (i * 37) % 100));
  const auto calls = times.From(absl::ZeroDuration());
  ASSERT_EQ(calls.size(), StepTrace::kMostCalls);
  EXPECT_EQ(times.left_out(), 100 - StepTrace::kMostCalls);
  for (const auto& call : calls) EXPECT_GE(call.took, absl::Milliseconds(36));
}

}  // namespace
}  // namespace divvy
