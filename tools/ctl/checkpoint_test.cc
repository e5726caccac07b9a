// What divvyctl tells of checkpoints, and their way to other formats and back.
#include "tools/ctl/checkpoint.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/in_memory_file_system.h"
#include "coordinator/checkpoint/exchange.h"
#include "coordinator/checkpoint/open_checkpoint.h"
#include "formats/safetensors.h"
#include "formats/tensor_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class CheckpointToolTest : public ::testing::Test {
 protected:
  CheckpointToolTest() { EXPECT_TRUE(files_.CreateDirectory("/ckpt").ok()); }

  // Two data files: a table in two slices, a complex tensor, and what Divvy keeps for itself, of so many steps.
  void Write(const std::string& prefix, char steps) {
    auto first = *BundleDataWriter::Create(files_, prefix, 0, 2), second = *BundleDataWriter::Create(files_, prefix, 1, 2);
    const std::string number = std::string(1, steps) + std::string(7, '\0');
    const std::vector<BundleSlice> slices = {
        *first->Append("table", DType::kInt8, {4, 2}, 0, 3, "abcdef"), *second->Append("table", DType::kInt8, {4, 2}, 3, 4, "gh"),
        *second->Append("z", DType::kComplex128, {}, 0, 1, std::string(16, 'z')), *second->Append("_divvy/job", DType::kUInt8, {1}, 0, 1, "j"),
        *second->Append("_divvy/finished_steps", DType::kInt64, {}, 0, 1, number)};
    ASSERT_TRUE(first->Finish().ok() && second->Finish().ok());
    ASSERT_EQ(WriteBundleIndex(files_, prefix, 2, slices), absl::OkStatus());
  }

  std::string Bytes(const BundleReader& reader, const std::string& name) {
    const auto value = reader.ReadTensor(name);
    return value.ok() ? std::string(static_cast<const char*>(value->data()), static_cast<size_t>(value->size_bytes())) : value.status().ToString();
  }

  InMemoryFileSystem files_;
};

TEST_F(CheckpointToolTest, TheNewestIsThatOfTheHighestEpochThenSerial) {
  for (const char* name : {"ckpt-2-9", "ckpt-10-1", "ckpt-2-10", "other"}) Write(absl::StrCat("/ckpt/", name), 5);
  EXPECT_THAT(*CheckpointPrefixes(files_, "/ckpt/"), ElementsAre("/ckpt/ckpt-10-1", "/ckpt/ckpt-2-10", "/ckpt/ckpt-2-9", "/ckpt/other"));
  EXPECT_EQ((*OpenCheckpoint(files_, "/ckpt"))->prefix(), "/ckpt/ckpt-10-1");
  EXPECT_EQ((*OpenCheckpoint(files_, "/ckpt/other.index"))->prefix(), "/ckpt/other");
}

TEST_F(CheckpointToolTest, AListTellsWhatIsDamagedAndTheNewestWholeOneIsTaken) {
  Write("/ckpt/ckpt-1-1", 5);
  Write("/ckpt/ckpt-1-2", 7);
  ASSERT_TRUE(files_.Remove("/ckpt/ckpt-1-2.data-00000-of-00002").ok());
  EXPECT_EQ(*DescribeCheckpoints(files_, "/ckpt"),
            "checkpoint  steps  tensors  bytes  state\n"
            "ckpt-1-2        -        -      -  /ckpt/ckpt-1-2.data-00000-of-00002 is missing\n"
            "ckpt-1-1        5        4     33  whole\n");
  EXPECT_EQ((*OpenCheckpoint(files_, "/ckpt"))->prefix(), "/ckpt/ckpt-1-1");
  EXPECT_EQ(OpenCheckpoint(files_, "/ckpt/ckpt-1-2").status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(files_.FlipBit("/ckpt/ckpt-1-1.index", 3, 0).ok());
  EXPECT_EQ(OpenCheckpoint(files_, "/ckpt").status().code(), absl::StatusCode::kDataLoss);
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
  EXPECT_EQ(report, "whole: /ckpt/ckpt-1-2: 4 tensors, 33 bytes\nwhole: /ckpt/ckpt-1-1: 4 tensors, 33 bytes\n");
  ASSERT_TRUE(files_.FlipBit("/ckpt/ckpt-1-2.data-00001-of-00002", 1, 7).ok());
  report.clear();
  EXPECT_EQ(VerifyCheckpoints(files_, "/ckpt", report), absl::DataLossError("/ckpt/ckpt-1-2 is damaged"));
  EXPECT_EQ(report,
            "damaged: /ckpt/ckpt-1-2.data-00001-of-00002: offset 0: tensor \"table\", [3, 4) [0, 2): the checksum does not fit the bytes\n"
            "whole: /ckpt/ckpt-1-1: 4 tensors, 33 bytes\n");
  report.clear();
  EXPECT_EQ(VerifyCheckpoints(files_, "/ckpt/ckpt-1-1", report), absl::OkStatus());
}

TEST_F(CheckpointToolTest, WhatIsNotThereIsSaid) {
  std::string report;
  EXPECT_EQ(DescribeCheckpoints(files_, "/none").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(DescribeCheckpoints(files_, "/ckpt").status(), absl::NotFoundError("no checkpoint in /ckpt: it has no file *.index"));
  EXPECT_EQ(OpenCheckpoint(files_, "/ckpt/x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(VerifyCheckpoints(files_, "/ckpt/x", report).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ImportCheckpoint(files_, "/ckpt/x.safetensors", "/ckpt/y").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CheckpointToolTest, AnExportHasTheVariablesAloneAndComesBackAsABundle) {
  Write("/ckpt/ckpt-1-1", 5);
  ExportOptions options;
  options.from = "/ckpt";
  options.to = "/out";
  const auto exported = ExportCheckpoint(files_, options);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->written, ElementsAre("/out/model.safetensors"));
  EXPECT_THAT(exported->left_out, ElementsAre("z: safetensors has no complex128"));
  const auto file = SafetensorsReader::Open(files_, "/out/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT((*file)->header().metadata, ElementsAre(Pair("divvy.checkpoint", "ckpt-1-1"), Pair("divvy.finished_steps", "5")));
  ASSERT_EQ((*file)->header().tensors.size(), 1u);

  const auto imported = ImportCheckpoint(files_, "/out/model.safetensors", "/new/start");
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->written, ElementsAre("/new/start.data-00000-of-00001", "/new/start.index"));
  const auto bundle = BundleReader::Open(files_, "/new/start");
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_EQ(Bytes(**bundle, "table"), "abcdefgh");
  EXPECT_EQ(ImportCheckpoint(files_, "/out/model.safetensors", "/new/start").status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(CheckpointToolTest, AnExportMayNameItsFileAndKeepsWhatStandsThere) {
  Write("/ckpt/ckpt-1-1", 5);
  ExportOptions options;
  options.from = "/ckpt";
  options.to = "/out/towers.safetensors";
  const auto exported = ExportCheckpoint(files_, options);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->written, ElementsAre("/out/towers.safetensors"));
  EXPECT_EQ(ExportCheckpoint(files_, options).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(CheckpointToolTest, AnExportMayBeABundleAndKeepsAllTypes) {
  Write("/ckpt/ckpt-1-1", 5);
  ExportOptions options;
  options.from = "/ckpt/ckpt-1-1";
  options.to = "/out/clean";
  options.format = ExchangeFormat::kBundle;
  const auto exported = ExportCheckpoint(files_, options);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->left_out, IsEmpty());
  const auto bundle = BundleReader::Open(files_, "/out/clean");
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_FALSE((*bundle)->index().is_own());
  EXPECT_EQ((*bundle)->index().tensors.size(), 2u);
  EXPECT_EQ(Bytes(**bundle, "table"), "abcdefgh");
}

TEST_F(CheckpointToolTest, SeveralSafetensorsFilesBecomeOneBundle) {
  const SafetensorsSource source = [](const SafetensorsSpec& tensor, const auto& append) { return append(tensor.name); };
  ASSERT_TRUE(files_.CreateDirectory("/hf").ok());
  ASSERT_TRUE(WriteShardedSafetensors(files_, "/hf/model.safetensors", {{"ab", DType::kInt8, {2}}, {"cde", DType::kUInt8, {3, 1}}}, {}, 3, source).ok());
  const auto imported = ImportCheckpoint(files_, "/hf/model.safetensors.index.json", "/ckpt/start");
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->tensors, 2u);
  const auto bundle = BundleReader::Open(files_, "/ckpt/start");
  EXPECT_EQ(Bytes(**bundle, "ab"), "ab");
  EXPECT_EQ(Bytes(**bundle, "cde"), "cde");
}

TEST_F(CheckpointToolTest, ADamagedCheckpointIsNotExportedAndAFailureLeavesNothing) {
  Write("/ckpt/ckpt-1-1", 5);
  ASSERT_TRUE(files_.FlipBit("/ckpt/ckpt-1-1.data-00000-of-00002", 2, 1).ok());
  ExportOptions options;
  options.from = "/ckpt/ckpt-1-1";
  options.to = "/out/clean";
  options.format = ExchangeFormat::kBundle;
  EXPECT_EQ(ExportCheckpoint(files_, options).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(*files_.ListDirectory("/out"), IsEmpty());
  options.format = ExchangeFormat::kSafetensors;
  options.to = "/out";
  EXPECT_EQ(ExportCheckpoint(files_, options).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(files_.Stat("/out/model.safetensors").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace divvy
