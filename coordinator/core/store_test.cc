#include "coordinator/core/store.h"

#include <memory>
#include <string>

#include "base/testing/sim_executor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;

VariableRow Variable(uint32_t id, int64_t rows = 1) {
  VariableRow row;
  row.layout.id = VariableId(id);
  row.layout.spec.shape = Shape{rows};
  row.layout.offsets = {0, rows};
  return row;
}

CheckpointRow Checkpoint(uint64_t epoch, uint64_t serial, int64_t finished_steps) {
  return {{Epoch(epoch), serial}, CheckpointRow::State::kCommitted, finished_steps, 0};
}

std::vector<uint32_t> VariableIds(const StoredJob& job) {
  std::vector<uint32_t> ids;
  for (const VariableRow& row : job.variables) ids.push_back(row.layout.id.value());
  return ids;
}

std::vector<std::string> CheckpointNames(const StoredJob& job) {
  std::vector<std::string> names;
  for (const CheckpointRow& row : job.checkpoints) names.push_back(row.id.name());
  return names;
}

TEST(StoreChangeTest, RowsRiseByIdWhateverTheOrderTheyArePutIn) {
  StoredJob job;
  Apply({{},
         {Variable(5), Variable(2), Variable(9)},
         {},
         {Checkpoint(2, 1, 0), Checkpoint(1, 7, 0), Checkpoint(2, 0, 0)}},
        job);
  EXPECT_THAT(VariableIds(job), ElementsAre(2, 5, 9));
  EXPECT_THAT(CheckpointNames(job), ElementsAre("ckpt-1-7", "ckpt-2-0", "ckpt-2-1"));
}

TEST(StoreChangeTest, APutReplacesTheRowOfItsIdAndLeavesOthers) {
  StoredJob job;
  Apply({{}, {Variable(1), Variable(2)}, {}, {Checkpoint(1, 1, 10)}}, job);
  Apply({{}, {Variable(2, /*rows=*/5)}, {}, {Checkpoint(1, 1, 20)}}, job);
  EXPECT_EQ(job.variables[0].layout.rows(), 1);
  EXPECT_EQ(job.variables[1].layout.rows(), 5);
  ASSERT_EQ(job.checkpoints.size(), 1u);
  EXPECT_EQ(job.checkpoints[0].finished_steps, 20);
}

TEST(StoreChangeTest, DeletingTakesTheRowAndNothingElseIfItIsNotThere) {
  StoredJob job;
  Apply({{}, {Variable(1), Variable(2)}, {}, {Checkpoint(1, 1, 0), Checkpoint(1, 2, 0)}}, job);
  Apply({{}, {}, {VariableId(1), VariableId(7)}, {}, {{Epoch(1), 2}, {Epoch(2), 1}}}, job);
  EXPECT_THAT(VariableIds(job), ElementsAre(2));
  EXPECT_THAT(CheckpointNames(job), ElementsAre("ckpt-1-1"));
}

TEST(StoreChangeTest, TheJobsRowStaysUnlessItIsPut) {
  StoredJob job;
  JobRow row;
  row.epoch = Epoch(4);
  Apply({row}, job);
  Apply({{}, {Variable(1)}}, job);
  EXPECT_EQ(job.job.epoch, Epoch(4));
}

TEST(MemoryStoreTest, KeepsWhatItIsGivenForTheNextWhoLoads) {
  SimExecutor world(1);
  StoredJob before;
  Apply({{}, {Variable(1)}}, before);
  MemoryStore store(world, before);
  bool done = false;
  store.Put({{}, {Variable(2)}}, [&done](absl::Status status) { done = status.ok(); });
  EXPECT_FALSE(done) << "Put must not call the completion itself";
  world.RunUntilIdle();
  EXPECT_TRUE(done);
  store.Close();
  EXPECT_THAT(VariableIds(*store.Load()), ElementsAre(1, 2));
  EXPECT_TRUE(store.Scrub().ok());
}

}  // namespace
}  // namespace divvy
