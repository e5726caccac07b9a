#include "tests/sim/order_judge.h"

#include "gtest/gtest.h"

namespace divvy::sim {
namespace {

OrderJudge::Operation Operation(CellOp op, int64_t begun, int64_t ended, bool direct = false) {
  return {0, op, begun, ended, direct};
}

TEST(OrderJudgeTest, ARowThatNothingHasChangedIsZero) {
  OrderJudge judge;
  EXPECT_TRUE(judge.Explains(0, 0));
  EXPECT_FALSE(judge.Explains(0, 1));
}

TEST(OrderJudgeTest, WhatEndedBeforeAnotherBeganIsBeforeIt) {
  OrderJudge judge;
  judge.Finished(Operation({0, 5}, 1, 2));
  judge.Finished(Operation({0, 7}, 3, 4));
  EXPECT_FALSE(judge.Explains(0, 5));
  EXPECT_TRUE(judge.Explains(0, 7));
}

TEST(OrderJudgeTest, OperationsBesideEachOtherMayHaveAnyOrderAndEachCountsOnce) {
  OrderJudge judge;
  judge.Finished(Operation({0, 100}, 0, 1));
  judge.Finished(Operation({-1, 5}, 2, 6));
  judge.Finished(Operation({1, 3}, 3, 7));
  EXPECT_TRUE(judge.Explains(0, -92));  // -100 + 5, + 3
  EXPECT_TRUE(judge.Explains(0, -98));  // -(100 + 3) + 5
  EXPECT_FALSE(judge.Explains(0, -95));
  EXPECT_FALSE(judge.Explains(0, 103));
}

TEST(OrderJudgeTest, AnOrderAgainstADirectWriteThatWasShownStays) {
  OrderJudge judge;
  judge.Finished(Operation({0, 100}, 2, 3, /*direct=*/true));
  judge.Finished(Operation({1, 5}, 1, 4));
  EXPECT_TRUE(judge.Explains(0, 105));
  EXPECT_FALSE(judge.Explains(0, 100));
  OrderJudge other;
  other.Finished(Operation({0, 100}, 2, 3, /*direct=*/true));
  other.Finished(Operation({1, 5}, 1, 4));
  EXPECT_TRUE(other.Explains(0, 100));
  EXPECT_FALSE(other.Explains(0, 105));
}

TEST(OrderJudgeTest, TwoStepsBesideEachOtherMayBeReplayedTheOtherWayRound) {
  OrderJudge judge;
  judge.Finished(Operation({0, 5}, 1, 3));
  judge.Finished(Operation({0, 7}, 2, 4));
  EXPECT_TRUE(judge.Explains(0, 7));
  EXPECT_TRUE(judge.Explains(0, 5));
}

TEST(OrderJudgeTest, ARowWithTooMuchBesideEachOtherIsNotJudged) {
  OrderJudge judge;
  for (int64_t i = 0; i < 40; ++i)
    judge.Finished(Operation({i % 2 == 0 ? 1 : -1, int64_t{1} << i}, 0, 100));
  EXPECT_TRUE(judge.Explains(0, 12345));
  EXPECT_EQ(judge.given_up(), 1);
}

}  // namespace
}  // namespace divvy::sim
