#include "tools/ctl/state.h"

#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "coordinator/store/sqlite_store.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kPoison = ~uint64_t{1};

StoredJob Running(Epoch epoch, Epoch lineage = Epoch(3)) {
  StoredJob job;
  job.job.job = JobId(0xabc);
  job.job.state = JobRow::State::kRunning;
  job.job.epoch = epoch;
  job.job.lineage = lineage;
  job.job.next_serial = 9;
  return job;
}

CheckpointRow Checkpoint(Epoch epoch, uint64_t serial) {
  CheckpointRow row;
  row.id = {epoch, serial};
  row.state = CheckpointRow::State::kCommitted;
  row.finished_steps = 70;
  return row;
}

// ---- repairs

TEST(StateRepairTest, NothingOfASoundJobIsTouched) {
  StoredJob job = Running(Epoch(5));
  job.checkpoints = {Checkpoint(Epoch(4), 8)};
  EXPECT_THAT(RepairOf(job).said, IsEmpty());
  EXPECT_FALSE(RepairOf(job).change.job.has_value());
  EXPECT_THAT(RepairOf(Running(Epoch(kGreatestEpoch.value() - 1))).said, IsEmpty());
  EXPECT_THAT(RepairOf(StoredJob()).said, IsEmpty());
}

TEST(StateRepairTest, AnEpochThatCannotBeBecomesOneFarAboveAllThatAreNamed) {
  StoredJob job = Running(Epoch(kPoison));
  job.checkpoints = {Checkpoint(Epoch(2), 7), Checkpoint(Epoch(7), 8)};
  const StateRepair repair = RepairOf(job);
  ASSERT_TRUE(repair.change.job.has_value());
  EXPECT_EQ(repair.change.job->epoch, Epoch(7 + (1 << 20)));
  EXPECT_EQ(repair.change.job->lineage, Epoch(3));
  EXPECT_EQ(repair.change.job->job, JobId(0xabc));
  EXPECT_EQ(repair.change.job->next_serial, 9u);
  EXPECT_THAT(repair.said,
              ElementsAre("epoch 18446744073709551614 is not valid: it becomes 1048583"));
}

TEST(StateRepairTest, AnEpochThatHasOverflownIsFoundByWhatItsRowsName) {
  const StateRepair repair = RepairOf(Running(Epoch(0)));
  ASSERT_TRUE(repair.change.job.has_value());
  EXPECT_EQ(repair.change.job->epoch, Epoch(3 + (1 << 20)));
}

TEST(StateRepairTest, WhatIsMendedIsInRangeWhateverTheRowsName) {
  const StateRepair repair = RepairOf(Running(Epoch(kPoison), kGreatestEpoch));
  ASSERT_TRUE(repair.change.job.has_value());
  EXPECT_TRUE(CanBe(repair.change.job->epoch));
  StoredJob mended = Running(repair.change.job->epoch, repair.change.job->lineage);
  EXPECT_THAT(RepairOf(mended).said, IsEmpty()) << mended.job.epoch.value();
}

TEST(StateRepairTest, AnOddLineageAndOddCheckpointsGo) {
  StoredJob job = Running(Epoch(kPoison), Epoch(kPoison - 1));
  job.checkpoints = {Checkpoint(Epoch(4), 1), Checkpoint(Epoch(kPoison), 2)};
  const StateRepair repair = RepairOf(job);
  ASSERT_TRUE(repair.change.job.has_value());
  EXPECT_EQ(repair.change.job->lineage, Epoch());
  EXPECT_EQ(repair.change.job->epoch, Epoch(4 + (1 << 20)));
  ASSERT_EQ(repair.change.deleted_checkpoints.size(), 1u);
  EXPECT_EQ(repair.change.deleted_checkpoints[0].serial, 2u);
  EXPECT_EQ(repair.said.size(), 3u);
}

// ---- in a directory

class StateDirectoryTest : public testing::Test {
 protected:
  std::unique_ptr<Store> Open() {
    absl::StatusOr<std::unique_ptr<Store>> store = SqliteStore::Open(directory_, executor_);
    EXPECT_TRUE(store.ok()) << store.status();
    return store.ok() ? *std::move(store) : nullptr;
  }
  void Write(const StoredJob& job) {
    StoreChange change;
    change.job = job.job;
    change.put_checkpoints = job.checkpoints;
    absl::Status written = absl::UnknownError("not yet");
    const std::unique_ptr<Store> store = Open();
    store->Put(std::move(change), [&written](const absl::Status& status) { written = status; });
    store->Close();  // waits for the write
    EXPECT_TRUE(written.ok()) << written;
  }
  StoredJob Read() { return Open()->Load().value_or(StoredJob()); }

  const std::string directory_ =
      absl::StrCat(std::getenv("TEST_TMPDIR"), "/state_",
                   testing::UnitTest::GetInstance()->current_test_info()->name());
  ThreadPoolExecutor executor_{1};
  FileSystem& files_ = FileSystem::Real();
};

TEST_F(StateDirectoryTest, APoisonedOneIsMendedAndTheOldFileKept) {
  StoredJob job = Running(Epoch(kPoison));
  job.checkpoints = {Checkpoint(Epoch(2), 7)};
  Write(job);
  EXPECT_THAT(
      DescribeState(files_, directory_).value_or(""),
      HasSubstr(
          "to be repaired by `divvyctl state repair`: epoch 18446744073709551614 is not valid"));
  EXPECT_EQ(RepairState(files_, directory_).value_or("refused"),
            "epoch 18446744073709551614 is not valid: it becomes 1048579\n");
  const StoredJob mended = Read();
  EXPECT_EQ(mended.job.epoch, Epoch(3 + (1 << 20)));
  EXPECT_EQ(mended.job.job, JobId(0xabc));
  EXPECT_EQ(mended.checkpoints.size(), 1u);
  EXPECT_EQ(RepairState(files_, directory_).value_or("refused"), "there is nothing to repair\n");

  const absl::StatusOr<std::string> before =
      files_.ReadFile(directory_ + "/divvy.db.before-repair");
  ASSERT_TRUE(before.ok()) << before.status();
  ASSERT_TRUE(files_.ReplaceFile(directory_ + "/divvy.db", *before).ok());
  files_.Remove(directory_ + "/divvy.db-wal").IgnoreError();  // there may be none
  EXPECT_EQ(Read().job.epoch, Epoch(kPoison));
}

TEST_F(StateDirectoryTest, ASoundOneIsDescribedAndLeftAsItIs) {
  StoredJob job = Running(Epoch(5));
  job.checkpoints = {Checkpoint(Epoch(4), 8)};
  Write(job);
  EXPECT_EQ(DescribeState(files_, directory_).value_or("refused"),
            "job 0000000000000abc: running, or waiting to be started again\nepoch 5, lineage 3\n0 "
            "variables, 1 checkpoints\n  ckpt-4-8: 70 steps\n");
  EXPECT_EQ(RepairState(files_, directory_).value_or("refused"), "there is nothing to repair\n");
  EXPECT_FALSE(files_.Stat(directory_ + "/divvy.db.before-repair").ok());
  EXPECT_EQ(Read().job.epoch, Epoch(5));
}

TEST_F(StateDirectoryTest, OneThatIsDescribedStaysWhatItWasAlsoWhileACoordinatorHoldsIt) {
  Write(Running(Epoch(5)));
  const std::string before = files_.ReadFile(directory_ + "/divvy.db").value_or("");
  const std::unique_ptr<Store> coordinator = Open();
  EXPECT_THAT(DescribeState(files_, directory_).value_or("refused"), HasSubstr("epoch 5"));
  EXPECT_EQ(files_.ReadFile(directory_ + "/divvy.db").value_or("gone"), before);
  ASSERT_TRUE(files_.ReplaceFile(directory_ + "/divvy.db", "no database").ok());
  EXPECT_THAT(std::string(DescribeState(files_, directory_).status().message()),
              HasSubstr(directory_))
      << "the directory was changed, not only the copy";
}

TEST_F(StateDirectoryTest, OneThatACoordinatorHoldsIsRefused) {
  Write(Running(Epoch(kPoison)));
  const std::unique_ptr<Store> coordinator = Open();
  const absl::Status refused = RepairState(files_, directory_).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr(directory_));
}

TEST_F(StateDirectoryTest, OneThatIsNotThereIsNotMade) {
  for (const auto& ask : {&DescribeState, &RepairState}) {
    const absl::Status refused = ask(files_, directory_).status();
    EXPECT_EQ(refused, absl::NotFoundError(directory_ +
                                           " has no divvy.db: give the coordinator's --state_dir"));
  }
  EXPECT_FALSE(files_.Stat(directory_).ok());
}

}  // namespace
}  // namespace divvy
