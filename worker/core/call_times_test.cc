#include "worker/core/call_times.h"

#include <vector>

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

// Long pulls do not hide the commits, and commits do not hide the pulls.
TEST(CallTimesTest, EachKindHasHalfOfThePlacesIfThereAreSoMany) {
  CallTimes times;
  for (int i = 0; i < 100; ++i) times.Add(Call(i, i, 1000 + i));
  for (int i = 0; i < 40; ++i) {
    CallTimes::Call commit = Call(i, 200 + i, 1 + i);
    commit.commit = true;
    times.Add(commit);
  }
  std::vector<int> pulls, commits;
  for (const auto& call : times.From(absl::ZeroDuration()))
    (call.commit ? commits : pulls).push_back(call.ps);
  ASSERT_EQ(pulls.size(), 32u);
  ASSERT_EQ(commits.size(), 32u);
  EXPECT_EQ(pulls.front(), 68) << "the longest";
  EXPECT_EQ(commits.front(), 8) << "the longest";
  EXPECT_EQ(times.left_out(), 140 - StepTrace::kMostCalls);
}

TEST(CallTimesTest, PlacesThatOneKindLeavesAreForTheOther) {
  CallTimes times;
  for (int i = 0; i < 100; ++i) times.Add(Call(i, i, 1000 + i));
  CallTimes::Call commit = Call(0, 200, 1);
  commit.commit = true;
  times.Add(commit);
  const auto calls = times.From(absl::ZeroDuration());
  ASSERT_EQ(calls.size(), StepTrace::kMostCalls);
  EXPECT_TRUE(calls.back().commit);
  EXPECT_EQ(calls.front().ps, 37);
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
