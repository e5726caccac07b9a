#include "base/recent_and_slowest.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Kept = RecentAndSlowest<int>;

absl::Duration S(int64_t seconds) { return absl::Seconds(seconds); }

Kept::Options Small() {
  Kept::Options options;
  options.last = 3;
  options.slowest = 2;
  options.window = S(100);
  return options;
}

TEST(RecentAndSlowestTest, TheLastOnesAreKeptInTheirOrder) {
  Kept kept(Small());
  EXPECT_THAT(kept.Last(), IsEmpty());
  for (int i = 1; i <= 5; ++i) kept.Add(S(i), S(1), i);
  EXPECT_THAT(kept.Last(), ElementsAre(3, 4, 5));
}

TEST(RecentAndSlowestTest, TheSlowestAreKeptHoweverManyCome) {
  Kept kept(Small());
  int value = 0;
  for (const int took : {3, 9, 1, 7, 7, 2}) kept.Add(S(1), S(took), ++value);
  EXPECT_THAT(kept.Slowest(S(1)), ElementsAre(2, 4));
}

TEST(RecentAndSlowestTest, AValueMayBeOfOneKindOnly) {
  Kept kept(Small());
  kept.AddIfSlow(S(1), S(9), 1);
  kept.AddToLast(2);
  EXPECT_THAT(kept.Last(), ElementsAre(2));
  EXPECT_THAT(kept.Slowest(S(1)), ElementsAre(1));
}

TEST(RecentAndSlowestTest, ASlowOneIsForgottenAfterTheWindow) {
  Kept kept(Small());
  kept.Add(S(0), S(9), 1);
  kept.Add(S(60), S(5), 2);
  EXPECT_THAT(kept.Slowest(S(100)), ElementsAre(1, 2));
  EXPECT_THAT(kept.Slowest(S(101)), ElementsAre(2));
  // It makes room for a faster one.
  kept.Add(S(120), S(1), 3);
  EXPECT_THAT(kept.Slowest(S(120)), ElementsAre(2, 3));
}

// A value that is faster than 32 older ones is one of the slowest when those have left the window.
TEST(RecentAndSlowestTest, OneThatLostAgainstOlderOnesIsShownWhenTheyAreForgotten) {
  RecentAndSlowest<int> kept;
  for (int i = 0; i < 32; ++i) kept.Add(S(i), S(7), i);
  kept.Add(S(9 * 60), S(5), 100);
  kept.Add(S(10 * 60 + 40), absl::Milliseconds(1), 101);
  EXPECT_THAT(kept.Slowest(S(10 * 60 + 41)), ElementsAre(100, 101));
}

TEST(RecentAndSlowestTest, NoMoreAreShownThanWantedHoweverLongItLasts) {
  Kept kept(Small());
  for (int i = 0; i < 10'000; ++i) kept.Add(S(i), S(i), i);
  EXPECT_THAT(kept.Slowest(S(9'999)), ElementsAre(9'999, 9'998));
  EXPECT_THAT(kept.Slowest(S(20'000)), IsEmpty());
}

TEST(RecentAndSlowestTest, TheThresholdIsTheLeastOfTheSlowestOfTheSlice) {
  Kept kept(Small());
  EXPECT_EQ(kept.Threshold(S(0)), -absl::InfiniteDuration());
  kept.Add(S(0), S(9), 1);
  EXPECT_EQ(kept.Threshold(S(0)), -absl::InfiniteDuration());
  kept.Add(S(1), S(5), 2);
  EXPECT_EQ(kept.Threshold(S(1)), S(5));
  kept.Add(S(2), S(7), 3);
  EXPECT_EQ(kept.Threshold(S(2)), S(7));
  EXPECT_EQ(kept.Threshold(S(10)), -absl::InfiniteDuration()) << "the next slice";
}

}  // namespace
}  // namespace divvy
