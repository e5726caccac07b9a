#include "coordinator/core/table_reports.h"

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "base/testing/sim_executor.h"
#include "coordinator/core/testing/no_dialer.h"
#include "gtest/gtest.h"
#include "variables/table_keys.h"

namespace divvy {
namespace {

ShardKey Part(uint32_t variable, uint16_t part) { return {VariableId(variable), 0, part}; }

// Table 1 has two parts on ps 0 and one on ps 1; variable 2 is no table.
std::shared_ptr<const Layout> LayoutWith(TableOptions options) {
  VariableLayout table;
  table.id = VariableId(1);
  table.spec.name = "user";
  table.spec.shape = {kTableBuckets, 4};
  table.spec.table = std::move(options);
  table.offsets = {0, kTableBuckets / 4, kTableBuckets / 2, kTableBuckets};
  table.ps = {0, 0, 1};
  VariableLayout plain;
  plain.id = VariableId(2);
  plain.spec.name = "w";
  plain.spec.shape = {3, 4};
  plain.offsets = {0, 3};
  plain.ps = {0};
  return Layout::Empty()->With(table)->With(plain);
}

TEST(TablesNow, AddsUpThePartsThatLieWhereTheLayoutSays) {
  CoordinatorOptions options;
  SimClock clock;
  NoDialer dialer;
  ServerSet servers(options, clock, dialer);
  servers.Add({"zero", "one"});
  servers[0].tables = {{Part(1, 0), {1, 10, 100, 1000, 10'000, 100'000}},
                       {Part(1, 1), {2, 20, 200, 2000, 20'000, 200'000}},
                       // of another server, no part, no table, and unknown
                       {Part(1, 2), {7, 7, 7, 7, 7, 7}},
                       {Part(1, 9), {7, 7, 7, 7, 7, 7}},
                       {Part(2, 0), {7, 7, 7, 7, 7, 7}},
                       {Part(3, 0), {7, 7, 7, 7, 7, 7}}};
  servers[1].tables = {{Part(1, 2), {4, 40, 400, 4000, 40'000, 400'000}}};
  TableOptions table;
  table.max_rows = 55;
  const auto now = TablesNow(*LayoutWith(table), servers);
  ASSERT_EQ(now.size(), 1u);
  EXPECT_EQ(now[0].name, "user");
  EXPECT_EQ(now[0].max_rows, 55);
  EXPECT_EQ(now[0].stats, (TablePartStats{7, 70, 700, 7000, 70'000, 700'000}));
  // Whatever a server tells, a sum does not overflow.
  servers[1].tables[0].stats.rows = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(TablesNow(*LayoutWith(table), servers)[0].stats.rows,
            std::numeric_limits<int64_t>::max());
  EXPECT_TRUE(TablesNow(*Layout::Empty(), servers).empty());
  servers.ForgetEpoch();
  EXPECT_EQ(TablesNow(*LayoutWith(table), servers)[0].stats, TablePartStats());
}

class CheckRoomTest : public ::testing::Test {
 protected:
  void Says(const absl::Status& status, absl::string_view text) const {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  }
  TableOptions options_;
  SyncReply::Table told_{Part(1, 1), {250, 0, 0, 250, 17, 0}};
};

TEST_F(CheckRoomTest, NamesTheTableTheLimitAndTheFix) {
  options_.full = TableOptions::Full::kFail;
  options_.max_rows = 1000;
  absl::Status status = CheckRoom(*LayoutWith(options_), 0, {told_});
  Says(status, "dynamic table \"user\" is full: 17 writes to new keys found no room on ps 0");
  Says(status, "it has 250 rows there, and max_rows=1000 gives this part 250");
  Says(status, "Raise max_rows, or give the table an eviction rule, or set `full` to kRefuse");
  // Below its share of the rows, so it was memory.
  told_.stats.rows = 249;
  status = CheckRoom(*LayoutWith(options_), 0, {told_});
  Says(status, "it has 249 rows there, and --memory_limit_bytes leaves no memory");
  Says(status, "Raise --memory_limit_bytes, or add parameter servers");
  options_.max_rows = 0;
  Says(CheckRoom(*LayoutWith(options_), 0, {told_}), "--memory_limit_bytes");
}

TEST_F(CheckRoomTest, IsOkUnlessThisTableFailsAndRefusedAKeyHere) {
  EXPECT_TRUE(CheckRoom(*LayoutWith(options_), 0, {told_}).ok()) << "it refuses, and goes on";
  options_.full = TableOptions::Full::kFail;
  EXPECT_TRUE(CheckRoom(*LayoutWith(options_), 1, {told_}).ok()) << "the part is not there";
  EXPECT_TRUE(CheckRoom(*Layout::Empty(), 0, {told_}).ok());
  EXPECT_TRUE(CheckRoom(*LayoutWith(options_), 0, {}).ok());
  told_.stats.refused = 0;
  EXPECT_TRUE(CheckRoom(*LayoutWith(options_), 0, {told_}).ok());
  told_ = {Part(2, 0), {1, 1, 1, 1, 1, 1}};
  EXPECT_TRUE(CheckRoom(*LayoutWith(options_), 0, {told_}).ok()) << "no table";
}

TEST(DescribeChange, HasWhatDiffers) {
  TableOptions before, now;
  EXPECT_EQ(DescribeChange(before, now), "");
  now.max_rows = 100;
  now.eviction = EvictLeastUsed();
  EXPECT_EQ(DescribeChange(before, now),
            "eviction EvictNever -> EvictLeastUsed, max_rows 0 -> 100");
  before.admission = AdmitAfter{2, 1 << 20};
  before.eviction = EvictUnusedFor{absl::Hours(48)};
  now.admission = AdmitAfter{5};
  now.eviction = EvictBelowNorm{0.5f};
  now.absent = TableOptions::Absent::kZeros;
  now.full = TableOptions::Full::kFail;
  now.max_rows = 0;
  EXPECT_EQ(DescribeChange(before, now),
            "admission AdmitAfter{2, 1048576} -> AdmitAfter{5}, eviction EvictUnusedFor{48h} -> "
            "EvictBelowNorm{0.5}, absent kInitialValue -> kZeros, full kRefuse -> kFail");
  before = now;
  now.admission = AdmitWithProbability{0.25};
  now.eviction = EvictLeastRecent();
  now.max_rows = 9;
  EXPECT_EQ(DescribeChange(before, now),
            "admission AdmitAfter{5} -> AdmitWithProbability{0.25}, eviction EvictBelowNorm{0.5} "
            "-> EvictLeastRecent, max_rows 0 -> 9");
}

}  // namespace
}  // namespace divvy
