#include "coordinator/core/eviction_schedule.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "variables/dynamic_table.h"

namespace divvy {
namespace {

// Its passes begin at bucket 0.
constexpr Epoch kEpoch{0};

// A table in two parts, on ps 1 and ps 0.
VariableLayout TableOf(uint32_t id, std::string name, Eviction eviction) {
  VariableLayout table;
  table.id = VariableId(id);
  table.spec = DynamicTable(std::move(name), {.width = 2, .eviction = eviction});
  table.offsets = {0, 1'500, kTableBuckets};
  table.ps = {1, 0};
  return table;
}

std::vector<int64_t> RowsOf(const CommitPart& part) {
  const auto rows = *part.rows->values<int64_t>();
  return {rows.begin(), rows.end()};
}

TEST(EvictionScheduleTest, APassComesToEachBucketOnceInAQuarterOfTheTime) {
  const auto layout = Layout::Empty()
                          ->With(TableOf(1, "never", EvictNever()))
                          ->With(TableOf(2, "full", EvictLeastUsed()))
                          ->With(TableOf(3, "unused", EvictUnusedFor{absl::Minutes(40)}));
  EvictionSchedule schedule;
  std::vector<int> seen(kTableBuckets);
  absl::Duration now;
  // The coordinator asks every second.
  for (; now < absl::Minutes(10); now += absl::Seconds(1)) {
    for (const auto& [ps, parts] : schedule.Next(*layout, 7, now, kEpoch)) {
      for (const CommitPart& part : parts) {
        EXPECT_EQ(part.shard.variable, VariableId(3));
        EXPECT_EQ(ps, part.shard.part == 0 ? 1 : 0);
        const std::vector<int64_t> rows = RowsOf(part);
        EXPECT_EQ(rows[0], 7);
        EXPECT_LE(rows[2] - rows[1], 128) << "a write a second, so that each is short";
        for (int64_t bucket = rows[1]; bucket < rows[2]; ++bucket) ++seen[bucket];
      }
    }
  }
  for (int64_t bucket = 0; bucket < kTableBuckets - 2 * EvictionSchedule::kBuckets; ++bucket)
    ASSERT_EQ(seen[bucket], 1) << bucket;
  EXPECT_TRUE(schedule.Next(*layout, 7, now - absl::Seconds(1), kEpoch).empty())
      << "one write at a time";
}

// Adds 1 for each bucket that `lives` come to, one after another, each for so long.
std::vector<int> SeenBy(uint64_t first_epoch, int lives, absl::Duration life) {
  const auto layout =
      Layout::Empty()->With(TableOf(3, "unused", EvictUnusedFor{absl::Hours(24 * 30)}));
  std::vector<int> seen(kTableBuckets);
  for (int i = 0; i < lives; ++i) {
    EvictionSchedule schedule;
    const Epoch epoch(first_epoch + static_cast<uint64_t>(i));
    for (absl::Duration now; now < life; now += absl::Seconds(1)) {
      for (const auto& [ps, parts] : schedule.Next(*layout, 7, now, epoch)) {
        for (const CommitPart& part : parts) {
          const std::vector<int64_t> rows = RowsOf(part);
          for (int64_t bucket = rows[1]; bucket < rows[2]; ++bucket) ++seen[bucket];
        }
      }
    }
  }
  return seen;
}

// A pass over this table takes an hour, and each write of it is for 32 buckets.
TEST(EvictionScheduleTest, CoordinatorsThatAreRestartedInEveryPassComeToAllBuckets) {
  for (const uint64_t first_epoch : {0, 1, 1'000}) {
    const std::vector<int> by_short = SeenBy(first_epoch, 2'048, absl::Seconds(3));
    EXPECT_EQ(std::count(by_short.begin(), by_short.end(), 0), 0)
        << "in their first moments, from epoch " << first_epoch;
    const std::vector<int> by_long = SeenBy(first_epoch, 10, absl::Minutes(10));
    EXPECT_EQ(std::count(by_long.begin(), by_long.end(), 0), 0)
        << "ten that come to a sixth each, from epoch " << first_epoch;
  }
}

TEST(EvictionScheduleTest, SeveralTablesTakeTurns) {
  auto layout = Layout::Empty()
                    ->With(TableOf(1, "a", EvictBelowNorm{0.1f}))
                    ->With(TableOf(2, "b", EvictBelowNorm{0.1f}));
  EvictionSchedule schedule;
  const absl::Duration late = absl::Hours(2);
  const auto first = schedule.Next(*layout, 0, late, kEpoch),
             second = schedule.Next(*layout, 0, late, kEpoch);
  ASSERT_EQ(first.size(), 1u) << "the first 32 buckets are on one ps";
  ASSERT_EQ(second.size(), 1u);
  EXPECT_NE(first.at(1)[0].shard.variable, second.at(1)[0].shard.variable);
  EXPECT_TRUE(schedule.Next(*layout, 0, late, kEpoch).empty());
  // A change of the layout does not begin the passes anew.
  layout = layout->With(TableOf(3, "c", EvictBelowNorm{0.1f}));
  absl::Duration now = late;
  EvictionSchedule::CommitPlan next;
  for (int64_t begin = 32; begin <= 1'472; begin += 32) {
    next = schedule.Next(*layout, 0, now += absl::Minutes(1), kEpoch);
    EXPECT_EQ(RowsOf(next.at(1)[0])[1], begin);
    for (int others = 0; others < 2; ++others) schedule.Next(*layout, 0, now, kEpoch);
  }
  ASSERT_EQ(next.size(), 2u) << "from bucket 1,472 on: both parts";
  EXPECT_EQ(RowsOf(next.at(1)[0]), (std::vector<int64_t>{0, 1'472, 1'500}));
  EXPECT_EQ(RowsOf(next.at(0)[0]), (std::vector<int64_t>{0, 1'500, 1'504}));
}

}  // namespace
}  // namespace divvy
