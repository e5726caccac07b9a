// What divvyctl tells of checkpoints.
#include "tools/ctl/checkpoint.h"

#include <string>

#include "base/testing/in_memory_file_system.h"
#include "coordinator/checkpoint/testing/some_checkpoint.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

class CheckpointToolTest : public ::testing::Test {
 protected:
  CheckpointToolTest() { EXPECT_TRUE(files_.CreateDirectory("/ckpt").ok()); }

  void Write(const std::string& prefix, char steps) { WriteSomeCheckpoint(files_, prefix, steps); }

  InMemoryFileSystem files_;
};

TEST_F(CheckpointToolTest, AListTellsWhatIsDamaged) {
  Write("/ckpt/ckpt-1-1", 5);
  Write("/ckpt/ckpt-1-2", 7);
  ASSERT_TRUE(files_.Remove("/ckpt/ckpt-1-2.data-00000-of-00002").ok());
  EXPECT_EQ(*DescribeCheckpoints(files_, "/ckpt"),
            "checkpoint  steps  tensors  bytes  state\n"
            "ckpt-1-2        -        -      -  /ckpt/ckpt-1-2.data-00000-of-00002 is missing\n"
            "ckpt-1-1        5        4     33  whole\n");
}

TEST_F(CheckpointToolTest, ACheckpointIsShownTensorByTensor) {
  Write("/ckpt/ckpt-1-1", 5);
  EXPECT_EQ(*DescribeCheckpoint(files_, "/ckpt"),
            "/ckpt/ckpt-1-1: 4 tensors, 33 bytes in 2 files, 5 finished steps\n"
            "tensor                 type        shape   slices  bytes\n"
            "_divvy/finished_steps  int64       []           1      8\n"
            "_divvy/job             uint8       [1]          1      1\n"
            "table                  int8        [4, 2]       2      8\n"
            "z                      complex128  []           1     16\n");
}

TEST_F(CheckpointToolTest, VerifyingReadsEachByteOfEachCheckpoint) {
  Write("/ckpt/ckpt-1-1", 5);
  Write("/ckpt/ckpt-1-2", 7);
  std::string report;
  EXPECT_EQ(VerifyCheckpoints(files_, "/ckpt", report), absl::OkStatus());
  EXPECT_EQ(
      report,
      "whole: /ckpt/ckpt-1-2: 4 tensors, 33 bytes\nwhole: /ckpt/ckpt-1-1: 4 tensors, 33 bytes\n");
  ASSERT_TRUE(files_.FlipBit("/ckpt/ckpt-1-2.data-00001-of-00002", 1, 7).ok());
  report.clear();
  EXPECT_EQ(VerifyCheckpoints(files_, "/ckpt", report),
            absl::DataLossError("/ckpt/ckpt-1-2 is damaged"));
  EXPECT_EQ(report,
            "damaged: /ckpt/ckpt-1-2.data-00001-of-00002: offset 0: tensor \"table\", [3, 4) [0, "
            "2): the checksum does not match the bytes\n"
            "whole: /ckpt/ckpt-1-1: 4 tensors, 33 bytes\n");
  report.clear();
  EXPECT_EQ(VerifyCheckpoints(files_, "/ckpt/ckpt-1-1", report), absl::OkStatus());
}

TEST_F(CheckpointToolTest, WhatIsNotThereIsSaid) {
  std::string report;
  EXPECT_EQ(DescribeCheckpoints(files_, "/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(DescribeCheckpoints(files_, "/ckpt").status(),
            absl::NotFoundError("no checkpoint in /ckpt: it has no file *.index"));
  EXPECT_EQ(VerifyCheckpoints(files_, "/ckpt/x", report).code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace divvy
