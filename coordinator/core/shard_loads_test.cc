#include "coordinator/core/shard_loads.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;

constexpr ShardKey kFirst{VariableId(1), 0, 0}, kSecond{VariableId(1), 0, 1};

TEST(ShardLoadsTest, KnowsARateFromTheSecondAnswerOn) {
  ShardLoads loads;
  loads.Note({{kFirst, 5000}}, absl::Seconds(100));
  EXPECT_THAT(loads.rows_per_second(), IsEmpty());
  loads.Note({{kFirst, 5300}}, absl::Seconds(101));
  EXPECT_THAT(loads.rows_per_second(), ElementsAre(Pair(kFirst, 300)));
}

TEST(ShardLoadsTest, ForgetsWorkThatHasMovedOn) {
  ShardLoads loads;
  uint64_t first = 0, second = 0;
  for (int second_of_time = 0; second_of_time <= 40; ++second_of_time) {
    (second_of_time <= 20 ? first : second) += 100;
    loads.Note({{kFirst, first}, {kSecond, second}}, absl::Seconds(second_of_time));
    const bool had_two_windows = second_of_time == 20;
    if (!had_two_windows) continue;
    EXPECT_THAT(loads.rows_per_second(), ElementsAre(Pair(kFirst, 100)));
  }
  EXPECT_THAT(loads.rows_per_second(), ElementsAre(Pair(kSecond, 100)));
}

TEST(ShardLoadsTest, AShardThatWasNotToldBeforeCountsFromTheNextWindowOn) {
  ShardLoads loads;
  loads.Note({{kFirst, 10}}, absl::ZeroDuration());
  loads.Note({{kFirst, 20}, {kSecond, 1'000'000}}, absl::Seconds(10));
  EXPECT_THAT(loads.rows_per_second(), ElementsAre(Pair(kFirst, 1)));
  loads.Note({{kFirst, 20}, {kSecond, 1'000'050}}, absl::Seconds(20));
  EXPECT_THAT(loads.rows_per_second(), ElementsAre(Pair(kSecond, 5)));
}

TEST(ShardLoadsTest, TwoAnswersAtOneMomentAndACountThatFallsAreNoRate) {
  ShardLoads loads;
  loads.Note({{kFirst, 50}}, absl::Seconds(1));
  loads.Note({{kFirst, 60}}, absl::Seconds(1));
  EXPECT_THAT(loads.rows_per_second(), IsEmpty());
  loads.Note({{kFirst, 7}}, absl::Seconds(2));
  EXPECT_THAT(loads.rows_per_second(), IsEmpty());
}

}  // namespace
}  // namespace divvy
