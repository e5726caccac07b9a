#include "coordinator/core/redo_log.h"

#include <optional>

#include "gtest/gtest.h"

namespace divvy {
namespace {

RedoLog::Step StepNamed(const std::string& function) { return {function, Nest(), {}, {}, 0, 1}; }

RedoLog::Write WriteOf(int64_t elements) {
  RedoLog::Write write;
  CommitPart part;
  part.values = *Tensor::Zeros(DType::kFloat32, Shape{elements});
  write.parts[0].push_back(std::move(part));
  return write;
}

std::vector<uint64_t> Runs(const RedoLog& log) {
  std::vector<uint64_t> ids;
  for (const RedoLog::Entry* entry = log.Next(EntryId()); entry != nullptr;
       entry = log.Next(EntryId(entry->id.value() + 1)))
    ids.push_back(entry->id.value());
  return ids;
}

using Ids = std::vector<uint64_t>;

TEST(RedoLogTest, FinishedStepsAndWritesAreRunAgainInTheOrderOfTheirIds) {
  RedoLog log(1 << 20);
  log.OpenStep(EntryId(1), 10);
  log.OpenStep(EntryId(2), 10);
  log.AddWrite(EntryId(3), WriteOf(1));
  log.OpenStep(EntryId(5), 10);
  log.FinishStep(EntryId(5), StepNamed("b"), 0);
  log.FinishStep(EntryId(1), StepNamed("a"), 0);
  EXPECT_EQ(Runs(log), (Ids{1, 3, 5})) << "step 2 is open";
  EXPECT_EQ(log.Next(EntryId(4))->step->function, "b");
  EXPECT_EQ(log.Next(EntryId(6)), nullptr);
  EXPECT_EQ(log.finished_steps(), 2);
}

TEST(RedoLogTest, EntriesAreNumberedAsTheyFinish) {
  RedoLog log(1 << 20);
  log.OpenStep(EntryId(1), 10);
  log.OpenStep(EntryId(2), 10);
  log.FinishStep(EntryId(2), StepNamed("b"), 0);
  log.AddWrite(EntryId(3), WriteOf(1));
  log.FinishWrite(EntryId(3));
  log.FinishStep(EntryId(1), StepNamed("a"), log.finishes());
  log.FinishWrite(EntryId(3));
  EXPECT_EQ(log.Next(EntryId(1))->finished, 3u);
  EXPECT_EQ(log.Next(EntryId(1))->begun, 2u);
  EXPECT_EQ(log.Next(EntryId(2))->finished, 1u);
  EXPECT_EQ(log.Next(EntryId(3))->finished, 2u) << "a write keeps its number";
  EXPECT_EQ(log.Next(EntryId(3))->begun, 1u);
}

TEST(RedoLogTest, AStepThatFailedLeavesNothing) {
  RedoLog log(1 << 20);
  log.OpenStep(EntryId(1), 10);
  log.OpenStep(EntryId(2), 20);
  log.OpenStep(EntryId(3), 30);
  log.Forget(EntryId(2));
  log.Forget(EntryId(7));
  EXPECT_EQ(log.bytes(), 40);
  log.FinishStep(EntryId(2), StepNamed("late"), 0);
  EXPECT_EQ(Runs(log), Ids());
  log.Forget(EntryId(1));
  EXPECT_EQ(log.size(), 1) << "entry 2 is removed together with entry 1";
}

TEST(RedoLogTest, ACommittedCutTakesWhatItClosesAndNothingElse) {
  RedoLog log(1 << 20);
  for (uint64_t id = 1; id <= 6; ++id) log.OpenStep(EntryId(id), 100);
  for (uint64_t id = 1; id <= 6; ++id) log.FinishStep(EntryId(id), StepNamed("f"), 0);
  const Horizon cut{EntryId(5), {EntryId(2), EntryId(4)}, 2};
  EXPECT_EQ(log.MoveBase(cut, 0).size(), 6u)
      << "entries that stay in the log are empty in the result";
  EXPECT_EQ(Runs(log), (Ids{2, 4, 5, 6}));
  EXPECT_EQ(log.bytes(), 400);
  EXPECT_EQ(log.finished_steps(), 4);
}

TEST(RedoLogTest, ShardsStayUntilTheLayoutThatHasThemIsCommitted) {
  RedoLog log(1 << 20);
  ShardSpec shard;
  shard.name = "v";
  log.AddShards(3, {{0, {shard}}});
  shard.name = "w";
  log.AddShards(4, {{0, {shard}}, {1, {shard}}});
  EXPECT_EQ(log.Shards().at(0).size(), 2u);
  log.MoveBase(Horizon{EntryId(1), {}, 0}, 3);
  ASSERT_EQ(log.Shards().at(0).size(), 1u);
  EXPECT_EQ(log.Shards().at(0)[0].name, "w");
  log.MoveBase(Horizon{EntryId(1), {}, 0}, 4);
  EXPECT_TRUE(log.Shards().empty());
  EXPECT_EQ(log.bytes(), 0);
}

TEST(RedoLogTest, ItIsHalfFullAtHalfItsBytesAndFullAtAll) {
  RedoLog log(1'000);
  log.OpenStep(EntryId(1), 499);
  EXPECT_FALSE(log.half_full());
  log.OpenStep(EntryId(2), 1);
  EXPECT_TRUE(log.half_full());
  EXPECT_FALSE(log.full());
  log.OpenStep(EntryId(3), 500);
  EXPECT_TRUE(log.full());
  log.Forget(EntryId(1));
  EXPECT_FALSE(log.full());
}

TEST(RedoLogTest, TheArgumentsOfAStepAndTheValuesOfAWriteAreCharged) {
  const Nest args(Tensor::Vector<float>({1, 2, 3, 4}));
  EXPECT_EQ(RedoLog::BytesOf("train", args, 0) - RedoLog::BytesOf("", Nest(), 0),
            5 + args.size_bytes() - Nest().size_bytes());
  RedoLog small(1 << 30), large(1 << 30);
  small.AddWrite(EntryId(1), WriteOf(1));
  large.AddWrite(EntryId(1), WriteOf(1'001));
  EXPECT_EQ(large.bytes() - small.bytes(), 4'000);
}

TEST(RedoLogTest, OneThatWasGivenUpTakesNothingAnyMore) {
  RedoLog log(1'000);
  log.OpenStep(EntryId(1), 1'000);
  EXPECT_TRUE(log.kept());
  EXPECT_EQ(log.GiveUp().size(), 1u);
  log.OpenStep(EntryId(2), 1'000);
  log.FinishStep(EntryId(2), StepNamed("f"), 0);
  log.AddWrite(EntryId(3), WriteOf(1'000));
  EXPECT_FALSE(log.kept());
  EXPECT_FALSE(log.full());
  EXPECT_EQ(log.size(), 0);
  EXPECT_EQ(Runs(log), Ids());
}

}  // namespace
}  // namespace divvy
