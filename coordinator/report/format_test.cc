#include "coordinator/report/format.h"

#include "coordinator/report/time_left.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(FormatTest, DurationsAreShort) {
  EXPECT_EQ(FormatLength(absl::Milliseconds(420)), "0.4 s");
  EXPECT_EQ(FormatLength(absl::Seconds(185)), "3:05");
  EXPECT_EQ(FormatLength(absl::Seconds(3765)), "1:02:45");
}

ProgressLine Line() {
  ProgressLine line;
  line.snapshot.ps_up = line.snapshot.num_ps = 2;
  line.snapshot.workers_up = 1;
  line.snapshot.num_workers = 2;
  line.snapshot.progress = CoordinatorSnapshot::Progress{false, 18, 837, 1350};
  line.epochs = 30;
  line.metrics = {{"accuracy", 0.991}, {"loss", 0.0312}};
  line.examples_per_second = 41200;
  line.left = absl::Seconds(1);
  return line;
}

TEST(FormatTest, AProgressLineShowsEverythingKnown) {
  EXPECT_EQ(FormatProgress(Line(), /*bar=*/true),
            "epoch 19/30  [========>     ]  62 %  step 837/1,350  41,200 examples/s  loss 0.0312  "
            "accuracy 0.991  ps 2/2  workers 1/2  1.0 s left");
}

TEST(FormatTest, WithoutATotalThereIsNoBar) {
  ProgressLine line = Line();
  line.snapshot.progress->total.reset();
  line.epochs.reset();
  line.left.reset();
  EXPECT_EQ(
      FormatProgress(line, true),
      "epoch 19  step 837  41,200 examples/s  loss 0.0312  accuracy 0.991  ps 2/2  workers 1/2");
}

TEST(FormatTest, WhatIsWaitedForLongIsSaid) {
  ProgressLine line = Line();
  line.snapshot.waits = {{"ps 1 (10.0.0.9:2222): connection refused", absl::Seconds(12)},
                         {"worker 0 (h:1)", absl::Seconds(4)}};
  const std::string text = FormatProgress(line, true);
  EXPECT_THAT(text, HasSubstr("waiting for ps 1 (10.0.0.9:2222): connection refused since 12 s"));
  EXPECT_THAT(text, Not(HasSubstr("worker 0 (h:1)")));
}

using Work = CoordinatorSnapshot::Work;

TEST(FormatTest, LongWorkHasItsShareAndTheTimeThatIsLeft) {
  EXPECT_EQ(FormatWork({Work::Kind::kRestore, 1 << 20, 4 << 20, absl::Seconds(2)}),
            "restore 25 % of 4 MiB, 6.0 s left");
  EXPECT_EQ(
      FormatWork({Work::Kind::kCheckpoint, int64_t{1} << 30, int64_t{3} << 30, absl::Seconds(60)}),
      "checkpoint 33 % of 3 GiB, 2:00 left");
  EXPECT_EQ(FormatWork({Work::Kind::kReplay, 1299, 1300, absl::Seconds(1299)}),
            "replay 99 % of 1,300 steps, 1.0 s left");
}

TEST(FormatTest, WorkWithoutAnEstimateSaysNoTime) {
  EXPECT_EQ(FormatWork({Work::Kind::kRestore, 0, 0, absl::Seconds(2)}), "restore");
  EXPECT_EQ(FormatWork({Work::Kind::kReplay, 0, 1300, absl::Seconds(2)}),
            "replay 0 % of 1,300 steps");
  EXPECT_EQ(FormatWork({Work::Kind::kCheckpoint, 98304, 98304, absl::Seconds(2)}),
            "checkpoint 100 % of 96 KiB");
}

TEST(FormatTest, WorkAndWaitsStandWhereANarrowTerminalHasRoomForThem) {
  ProgressLine line = Line();
  line.snapshot.work = Work{Work::Kind::kRestore, 117 << 20, 260 << 20, absl::Seconds(10)};
  EXPECT_THAT(FormatProgress(line, true).substr(0, 79),
              HasSubstr("step 837/1,350  restore 45 % of 260 MiB, 12.2 s left  "));
  line.snapshot.work.reset();
  line.snapshot.waits = {{"ps 1 (10.0.0.9:2222)", absl::Seconds(12)}};
  EXPECT_THAT(FormatProgress(line, true).substr(0, 79),
              HasSubstr("step 837/1,350  waiting for ps 1 (10.0.0.9:2222) since 12 s"));
}

TEST(FormatTest, WorkIsOnTheLineFromItsFirstSecondOn) {
  ProgressLine line = Line();
  line.snapshot.work = Work{Work::Kind::kCheckpoint, 1, 2, absl::Milliseconds(999)};
  EXPECT_THAT(FormatProgress(line, true), Not(HasSubstr("checkpoint")));
  line.snapshot.work->since = absl::Seconds(1);
  EXPECT_THAT(FormatProgress(line, true), HasSubstr("  checkpoint 50 % of 2 B, 1.0 s left  "));
}

TEST(FormatTest, RowsOfTablesAreShownAndAFullOneIsNamed) {
  ProgressLine line = Line();
  EXPECT_THAT(FormatProgress(line, true), Not(HasSubstr("table")));
  line.snapshot.tables = {{"user", {1200, 5, 1 << 20, 1300, 0, 100}, 0},
                          {"ad", {34, 0, 1 << 10, 34, 0, 0}, 100}};
  EXPECT_THAT(FormatProgress(line, true), HasSubstr("accuracy 0.991  table rows 1,234  ps 2/2"));
  line.snapshot.tables[1].stats.refused = 5678;
  EXPECT_THAT(FormatProgress(line, true),
              HasSubstr("table rows 1,234  table ad is full: 5,678 keys refused  ps 2/2"));
  const std::map<std::string, double> points = TablePoints(line.snapshot);
  EXPECT_EQ(points.size(), 12u);
  EXPECT_EQ(points.at("tables/user/rows"), 1200);
  EXPECT_EQ(points.at("tables/user/waiting"), 5);
  EXPECT_EQ(points.at("tables/user/bytes"), 1 << 20);
  EXPECT_EQ(points.at("tables/user/admitted"), 1300);
  EXPECT_EQ(points.at("tables/user/evicted"), 100);
  EXPECT_EQ(points.at("tables/ad/refused"), 5678);
}

TEST(FormatTest, VariablesAreATable) {
  VariableLayout kernel;
  kernel.id = VariableId(1);
  kernel.spec.name = "mlp/0/kernel";
  kernel.spec.shape = {64, 128};
  kernel.offsets = {0, 32, 64};
  kernel.ps = {0, 1};
  VariableLayout bias;
  bias.id = VariableId(2);
  bias.spec.name = "b";
  bias.spec.shape = {10};
  bias.offsets = {0, 10};
  bias.ps = {0};
  EXPECT_EQ(FormatVariables(*Layout::Empty()->With(kernel)->With(bias)),
            "  mlp/0/kernel  float32 [64, 128]  32 KiB  2 shards: ps 0, 1\n"
            "  b             float32 [10]       40 B    1 shard: ps 0\n");
  VariableLayout table = kernel;
  table.spec.name = "user";
  table.spec.table = TableOptions();
  EXPECT_EQ(FormatVariables(*Layout::Empty()->With(table)),
            "  user  dynamic table, width 128    2 shards: ps 0, 1\n");
}

TEST(TimeLeftTest, FollowsFromTheStepsBehindTheFirst) {
  TimeLeft left;
  left.Begin(/*done=*/0);
  // The data is being shuffled, and no step has finished.
  EXPECT_EQ(left.At(absl::Seconds(60), 0, 100), std::nullopt);
  EXPECT_EQ(left.At(absl::Seconds(61), 1, 99), std::nullopt)
      << "the minute before the first step must not count as the time of one step";
  EXPECT_EQ(left.At(absl::Seconds(61.5), 50, 50), std::nullopt)
      << "less than a second has passed since the first step";
  EXPECT_EQ(left.At(absl::Seconds(63), 21, 80), absl::Seconds(8));
}

TEST(TimeLeftTest, BeginsAnewWithEachPass) {
  TimeLeft left;
  left.Begin(0);
  left.At(absl::Seconds(1), 1, 9);
  EXPECT_EQ(left.At(absl::Seconds(3), 3, 10), absl::Seconds(10));
  left.Begin(/*done=*/5);
  EXPECT_EQ(left.At(absl::Seconds(4), 5, 10), std::nullopt);
  left.At(absl::Seconds(20), 6, 10);
  EXPECT_EQ(left.At(absl::Seconds(22), 7, 10), std::nullopt) << "only one more step has finished";
  EXPECT_EQ(left.At(absl::Seconds(24), 8, 10), absl::Seconds(20));
}

}  // namespace
}  // namespace divvy
