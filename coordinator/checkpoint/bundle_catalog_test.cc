// How a coordinator's catalog treats damage, failing devices, other versions and other jobs.
#include "coordinator/checkpoint/bundle_catalog.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/in_memory_file_system.h"
#include "formats/tensor_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/error.h"

namespace divvy {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobState StateOf(JobId job, uint64_t serial) {
  JobState state;
  state.job = job;
  state.checkpoint = {Epoch(1), serial};
  state.lineage = Epoch(1);
  state.layout = Layout::Empty();
  state.finished_steps = static_cast<int64_t>(10 * serial);
  return state;
}

class BundleCatalogTest : public ::testing::Test {
 protected:
  std::unique_ptr<CheckpointCatalog> Open() {
    auto catalog = OpenBundleCatalog(files_, "/ckpt");
    EXPECT_TRUE(catalog.ok()) << catalog.status();
    return *std::move(catalog);
  }
  // Writes a checkpoint without data of servers. `job`: the bytes of its job state.
  void WriteOther(const std::string& name, const std::string& job, int64_t format) {
    auto file = *BundleDataWriter::Create(files_, absl::StrCat("/ckpt/", name), 0, 1);
    std::vector<BundleSlice> slices;
    const int64_t bytes = static_cast<int64_t>(job.size());
    slices.push_back(*file->Append("_divvy/job", DType::kUInt8, {bytes}, 0, bytes, job));
    slices.push_back(
        *file->Append("_divvy/format", DType::kInt64, {}, 0, 1,
                      absl::string_view(reinterpret_cast<const char*>(&format), sizeof format)));
    ASSERT_TRUE(file->Finish().ok());
    ASSERT_TRUE(WriteBundleIndex(files_, absl::StrCat("/ckpt/", name), 1, slices).ok());
  }

  InMemoryFileSystem files_;
};

constexpr JobId kJob{7}, kOther{8};

TEST_F(BundleCatalogTest, TheNewestIsReadAgainAndOldOnesAreCollectedAndNamed) {
  const auto catalog = Open();
  for (uint64_t serial = 1; serial <= 4; ++serial)
    ASSERT_EQ(catalog->Commit(StateOf(kJob, serial), {}), absl::OkStatus());
  const auto newest = catalog->Newest(std::nullopt);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ((*newest)->checkpoint.name(), "ckpt-1-4");
  EXPECT_EQ((*newest)->finished_steps, 40);
  std::vector<CheckpointId> removed;
  EXPECT_EQ(catalog->Collect(2, {Epoch(1), 1}, {Epoch(1), 4}, removed), absl::OkStatus());
  ASSERT_EQ(removed.size(), 1u) << "the base is kept";
  EXPECT_EQ(removed[0].name(), "ckpt-1-2");
}

TEST_F(BundleCatalogTest, ADamagedCheckpointIsPassedOverAndOneThatTheDeviceCannotReadIsNot) {
  const auto catalog = Open();
  for (const uint64_t serial : {1, 2})
    ASSERT_EQ(catalog->Commit(StateOf(kJob, serial), {}), absl::OkStatus());
  for (const FileOperation operation :
       {FileOperation::kOpenForRead, FileOperation::kRead, FileOperation::kStat}) {
    SCOPED_TRACE(static_cast<int>(operation));
    files_.FailNext(operation, "/ckpt/ckpt-1-2.data",
                    absl::DataLossError("cannot read it: the device failed (EIO)"));
    const absl::Status failed = catalog->Newest(std::nullopt).status();
    EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable)
        << failed << ": the next start may be able to read the checkpoint";
    EXPECT_THAT(std::string(failed.message()), HasSubstr("EIO"));
  }
  EXPECT_EQ((**catalog->Newest(std::nullopt)).checkpoint.serial, 2u);
  ASSERT_TRUE(files_.FlipBit("/ckpt/ckpt-1-2.index", 3, 0).ok());
  EXPECT_EQ((**catalog->Newest(std::nullopt)).checkpoint.serial, 1u);
}

TEST_F(BundleCatalogTest, ACheckpointOfAnEpochThatLeavesNoneAfterItIsPassedOver) {
  const auto catalog = Open();
  ASSERT_EQ(catalog->Commit(StateOf(kJob, 1), {}), absl::OkStatus());
  JobState state = StateOf(kJob, 2);
  for (const uint64_t epoch : {~uint64_t{0}, uint64_t{1} << 48}) {
    state.checkpoint.epoch = Epoch(epoch);
    ASSERT_EQ(catalog->Commit(state, {}), absl::OkStatus());
    const auto newest = catalog->Newest(std::nullopt);
    ASSERT_TRUE(newest.ok()) << newest.status();
    EXPECT_EQ((**newest).checkpoint.serial, 1u) << epoch;
  }
  ASSERT_EQ(catalog->Commit(StateOf(kJob, 3), {}), absl::OkStatus());
  std::vector<CheckpointId> removed;
  ASSERT_EQ(catalog->Collect(2, {}, {Epoch(1), 4}, removed), absl::OkStatus());
  EXPECT_THAT(removed, IsEmpty()) << "two good checkpoints are kept";
}

TEST_F(BundleCatalogTest, ACheckpointThatIsNoFileIsPassedOver) {
  const auto catalog = Open();
  ASSERT_EQ(catalog->Commit(StateOf(kJob, 1), {}), absl::OkStatus());
  ASSERT_TRUE(files_.CreateDirectory("/ckpt/ckpt-1-2.index").ok());
  const auto newest = catalog->Newest(std::nullopt);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ((**newest).checkpoint.serial, 1u);
}

TEST_F(BundleCatalogTest, WhatAnotherVersionHasWrittenIsToldFromDamage) {
  const auto catalog = Open();
  ASSERT_EQ(catalog->Commit(StateOf(kJob, 1), {}), absl::OkStatus());
  WriteOther("ckpt-1-2", "later than we know", 3);
  absl::Status refused = catalog->Newest(std::nullopt).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kVersionMismatch) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("/ckpt/ckpt-1-2 was written by another version of Divvy, this is 0.1.0: it "
                        "has format 3, and 1 to 2 are read"));
  WriteOther("ckpt-1-3", "no state at all", 1);
  refused = catalog->Newest(std::nullopt).status();
  EXPECT_EQ(ReasonOf(refused), Reason::kVersionMismatch) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("divvyctl checkpoint export"));
}

TEST_F(BundleCatalogTest, ADirectoryIsTheFirstJobsThatCommitsThere) {
  const auto first = Open(), second = Open();
  EXPECT_FALSE(first->Newest(std::nullopt)->has_value());
  EXPECT_FALSE(second->Newest(std::nullopt)->has_value())
      << "both jobs begin with an empty directory";
  ASSERT_EQ(first->Commit(StateOf(kJob, 1), {}), absl::OkStatus());
  EXPECT_EQ(*files_.ReadFile("/ckpt/job"), "job 7\n");
  std::vector<CheckpointId> removed;
  for (const absl::Status& refused :
       {second->Collect(2, {}, {Epoch(9), 1}, removed), second->Commit(StateOf(kOther, 2), {}),
        second->Collect(2, {}, {Epoch(9), 1}, removed)}) {
    EXPECT_EQ(ReasonOf(refused), Reason::kWrongJob) << refused;
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("/ckpt/job says that the checkpoints in /ckpt are of job 7"));
  }
  EXPECT_THAT(removed, IsEmpty());
  EXPECT_EQ(first->Commit(StateOf(kJob, 2), {}), absl::OkStatus());
  const auto next_life = Open();
  EXPECT_TRUE(next_life->Newest(std::nullopt)->has_value());
  EXPECT_EQ(next_life->Collect(2, {}, {Epoch(1), 3}, removed), absl::OkStatus());
}

TEST_F(BundleCatalogTest, AJobThatLeftNoCheckpointLeavesItsDirectoryToTheNext) {
  const auto first = Open(), second = Open();
  ASSERT_EQ(first->Commit(StateOf(kJob, 1), {}), absl::OkStatus());
  ASSERT_EQ(files_.Remove("/ckpt/ckpt-1-1.index"), absl::OkStatus());
  EXPECT_EQ(second->Commit(StateOf(kOther, 2), {}), absl::OkStatus());
  EXPECT_EQ(*files_.ReadFile("/ckpt/job"), "job 8\n");
}

}  // namespace
}  // namespace divvy
