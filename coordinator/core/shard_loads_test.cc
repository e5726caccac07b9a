#include "coordinator/core/shard_loads.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using testing::IsEmpty;

constexpr ShardKey kFirst{VariableId(1), 0, 0}, kSecond{VariableId(1), 0, 1};

// All use is in the third part of the rows.
SyncReply::Load Used(ShardKey shard, uint64_t bytes) {
  SyncReply::Load load{shard, std::vector<uint64_t>(SyncReply::Load::kParts)};
  load.bytes[2] = bytes;
  return load;
}

// The rate of the third part; those of the others must be 0. -1: there is no rate.
double RateOf(const ShardLoads& loads, ShardKey shard) {
  const auto found = loads.bytes_per_second().find(shard);
  if (found == loads.bytes_per_second().end()) return -1;
  for (size_t i = 0; i < found->second.size(); ++i) {
    if (i != 2) {
      EXPECT_EQ(found->second[i], 0) << i;
    }
  }
  return found->second[2];
}

TEST(ShardLoadsTest, KnowsRatesOfFiveSecondsOrMore) {
  ShardLoads loads;
  loads.Note({Used(kFirst, 5000)}, absl::Seconds(100));
  EXPECT_THAT(loads.bytes_per_second(), IsEmpty());
  loads.Note({Used(kFirst, 5300)}, absl::Seconds(101));
  EXPECT_EQ(RateOf(loads, kFirst), 300);
  EXPECT_FALSE(loads.are_known());
  loads.Note({Used(kFirst, 6000)}, absl::Seconds(105));
  EXPECT_EQ(RateOf(loads, kFirst), 200);
  EXPECT_TRUE(loads.are_known());
}

TEST(ShardLoadsTest, ForgetsWorkThatHasMovedOn) {
  ShardLoads loads;
  uint64_t first = 0, second = 0;
  const auto note = [&](int time) {
    loads.Note({Used(kFirst, first), Used(kSecond, second)}, absl::Seconds(time));
  };
  for (int time = 0; time <= 20; ++time, first += 100) note(time);
  EXPECT_EQ(RateOf(loads, kFirst), 100);
  EXPECT_EQ(RateOf(loads, kSecond), 0);
  for (int time = 21; time <= 40; ++time, second += 100) note(time);
  EXPECT_EQ(RateOf(loads, kFirst), 0);
  EXPECT_EQ(RateOf(loads, kSecond), 100);
  EXPECT_TRUE(loads.are_known());
}

TEST(ShardLoadsTest, AShardThatNobodyHadUsedCountsAtOnce) {
  ShardLoads loads;
  loads.Note({Used(kFirst, 10)}, absl::ZeroDuration());
  loads.Note({Used(kFirst, 20), Used(kSecond, 50)}, absl::Seconds(10));
  EXPECT_EQ(RateOf(loads, kFirst), 1);
  EXPECT_EQ(RateOf(loads, kSecond), 5);
}

TEST(ShardLoadsTest, OfManyShardsOneThatWasNotToldCountsFromTheNextWindowOn) {
  std::vector<SyncReply::Load> told;
  for (uint16_t part = 0; part < 256; ++part) told.push_back(Used({VariableId(2), 0, part}, 10));
  ShardLoads loads;
  loads.Note(told, absl::ZeroDuration());
  told[0] = Used(kSecond, 1'000'000);
  loads.Note(told, absl::Seconds(10));
  EXPECT_EQ(RateOf(loads, kSecond), -1);
  told[0] = Used(kSecond, 1'000'050);
  loads.Note(told, absl::Seconds(20));
  EXPECT_EQ(RateOf(loads, kSecond), 5);
}

TEST(ShardLoadsTest, TwoAnswersAtOneMomentAndACountThatFallsAreNoLoad) {
  ShardLoads loads;
  loads.Note({Used(kFirst, 50)}, absl::Seconds(1));
  loads.Note({Used(kFirst, 60)}, absl::Seconds(1));
  EXPECT_THAT(loads.bytes_per_second(), IsEmpty());
  loads.Note({Used(kFirst, 7)}, absl::Seconds(2));
  EXPECT_EQ(RateOf(loads, kFirst), 0);
}

}  // namespace
}  // namespace divvy
