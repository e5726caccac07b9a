#include "coordinator/core/replay_order.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

TEST(ReplayOrderTest, WhatBeganBeforeAnythingHadFinishedMayBeginAtOnce) {
  const ReplayOrder order({1, 2});
  EXPECT_TRUE(order.MayBegin(0));
  EXPECT_FALSE(order.MayBegin(1));
}

TEST(ReplayOrderTest, AnEntryWaitsForAllThatHadFinishedWhenItBegan) {
  ReplayOrder order({3, 1, 2});
  order.Finish(2);
  EXPECT_FALSE(order.MayBegin(2)) << "entry 1 is missing";
  order.Finish(1);
  EXPECT_TRUE(order.MayBegin(2));
  EXPECT_FALSE(order.MayBegin(3));
  order.Finish(3);
  EXPECT_TRUE(order.MayBegin(3));
}

TEST(ReplayOrderTest, NumbersThatTheBaseCoversOrThatFailedAreNotWaitedFor) {
  ReplayOrder order({5, 9});
  EXPECT_TRUE(order.MayBegin(4));
  order.Finish(7);
  EXPECT_FALSE(order.MayBegin(7));
  order.Finish(5);
  EXPECT_TRUE(order.MayBegin(8));
}

TEST(ReplayOrderTest, AnEmptyLogHoldsNothingBack) { EXPECT_TRUE(ReplayOrder().MayBegin(1'000)); }

}  // namespace
}  // namespace divvy
