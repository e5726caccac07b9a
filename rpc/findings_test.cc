#include "rpc/findings.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<TimedValue> Every5s(std::vector<double> values) {
  std::vector<TimedValue> points;
  for (size_t i = 0; i < values.size(); ++i)
    points.push_back({absl::Seconds(100 + 5 * static_cast<int>(i)), values[i]});
  return points;
}

TEST(TimeUntilTest, IsThatOfAStraightLine) {
  EXPECT_EQ(TimeUntil(Every5s({0, 10, 20, 30, 40, 50}), 150), absl::Seconds(50));
  EXPECT_EQ(TimeUntil(Every5s({0, 10, 20, 30, 40, 50}), 40), absl::ZeroDuration());
}

TEST(TimeUntilTest, FewSamplesTellNothing) {
  EXPECT_EQ(TimeUntil({}, 100), std::nullopt);
  EXPECT_EQ(TimeUntil(Every5s({0, 10, 20, 30, 40}), 100), std::nullopt);
  std::vector<TimedValue> close;
  for (int i = 0; i < 10; ++i) close.push_back({absl::Seconds(i), 10.0 * i});
  EXPECT_EQ(TimeUntil(close, 1000), std::nullopt);
}

TEST(TimeUntilTest, WhatFallsOrStaysIsNeverFull) {
  EXPECT_EQ(TimeUntil(Every5s({60, 50, 40, 30, 20, 10}), 100), std::nullopt);
  EXPECT_EQ(TimeUntil(Every5s({50, 50, 50, 50, 50, 50}), 100), std::nullopt);
}

TEST(TimeUntilTest, ALeapIsNoGrowth) {
  EXPECT_EQ(TimeUntil(Every5s({0, 0, 90, 90, 90, 90, 90, 90}), 100), std::nullopt);
  EXPECT_EQ(TimeUntil(Every5s({0, 20, 40, 60, 60, 50, 40, 30}), 100), std::nullopt);
}

TEST(TimeUntilTest, BeyondAWeekIsNotTold) {
  EXPECT_EQ(TimeUntil(Every5s({0, 1, 2, 3, 4, 5}), 1e6), std::nullopt);
}

TEST(HotServersTest, HasMoreThanThreeTimesTheMeanOfTheOthers) {
  EXPECT_THAT(HotServers({{0, 100}, {1, 100}, {2, 1300}, {3, 100}}), ElementsAre(Outlier{2, 3.25}));
  EXPECT_THAT(HotServers({{0, 100}, {1, 100}, {2, 300}, {3, 100}}), IsEmpty());
}

TEST(HotServersTest, OneServerOrIdleOnesAreNotHot) {
  EXPECT_THAT(HotServers({{0, 1e6}}), IsEmpty());
  EXPECT_THAT(HotServers({}), IsEmpty());
  EXPECT_THAT(HotServers({{0, 0}, {1, 0}}), IsEmpty());
  EXPECT_THAT(HotServers({{0, 0}, {1, 0.5}}), IsEmpty());
}

TEST(HotServersTest, OneThatDoesAllIsHot) {
  EXPECT_THAT(HotServers({{0, 0}, {5, 1000}}), ElementsAre(Outlier{5, 2}));
}

TEST(StragglersTest, TakesMoreThanTwiceTheMedian) {
  EXPECT_THAT(Stragglers({{0, 0.1}, {1, 0.1}, {2, 0.5}}), ElementsAre(Outlier{2, 5}));
  EXPECT_THAT(Stragglers({{0, 0.1}, {1, 0.1}, {2, 0.19}}), IsEmpty());
}

TEST(StragglersTest, OfTwoNobodyCanTell) {
  EXPECT_THAT(Stragglers({{0, 0.1}, {1, 0.9}}), IsEmpty());
  EXPECT_THAT(Stragglers({{0, 0.1}, {1, 0.9}, {2, 0}}), IsEmpty()) << "2 has run nothing";
  EXPECT_THAT(Stragglers({}), IsEmpty());
}

TEST(StragglersTest, OfAnEvenNumberTheLowerMiddleCounts) {
  EXPECT_THAT(Stragglers({{0, 0.1}, {1, 0.1}, {2, 0.5}, {3, 0.5}}),
              ElementsAre(Outlier{2, 5}, Outlier{3, 5}));
}

TEST(InputBoundTest, IsABusyWorkerThatWaitsHalfOfTheTime) {
  EXPECT_TRUE(IsInputBound(6, 10, 10));
  EXPECT_FALSE(IsInputBound(4, 10, 10));
  EXPECT_FALSE(IsInputBound(3, 3, 10)) << "it does little";
  EXPECT_FALSE(IsInputBound(0, 0, 0));
}

TEST(SpanTextTest, HasTwoUnits) {
  EXPECT_EQ(SpanText(absl::Seconds(25)), "25 s");
  EXPECT_EQ(SpanText(absl::Seconds(605)), "10 min 5 s");
  EXPECT_EQ(SpanText(absl::Minutes(190)), "3 h 10 min");
  EXPECT_EQ(SpanText(absl::Hours(50)), "2 d 2 h");
}

}  // namespace
}  // namespace divvy
