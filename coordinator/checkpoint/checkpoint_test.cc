// Finding checkpoints by name, exporting and importing them, and exporting from a running job.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/testing/in_memory_file_system.h"
#include "coordinator/checkpoint/bundle_catalog.h"
#include "coordinator/checkpoint/exchange.h"
#include "coordinator/checkpoint/open_checkpoint.h"
#include "coordinator/checkpoint/testing/some_checkpoint.h"
#include "formats/safetensors.h"
#include "formats/tensor_bundle.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "protocol/error.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

std::string Bytes(const BundleReader& reader, const std::string& name) {
  const auto value = reader.ReadTensor(name);
  return value.ok() ? std::string(static_cast<const char*>(value->data()),
                                  static_cast<size_t>(value->size_bytes()))
                    : value.status().ToString();
}

class CheckpointFilesTest : public ::testing::Test {
 protected:
  CheckpointFilesTest() { EXPECT_TRUE(files_.CreateDurableDirectory("/ckpt").ok()); }

  void Write(const std::string& prefix, char steps) { WriteSomeCheckpoint(files_, prefix, steps); }

  InMemoryFileSystem files_;
};

// ---- by name ----

using OpenCheckpointTest = CheckpointFilesTest;

TEST_F(OpenCheckpointTest, TheNewestIsThatOfTheHighestEpochThenSerial) {
  for (const char* name : {"ckpt-2-9", "ckpt-10-1", "ckpt-2-10", "other"})
    Write(absl::StrCat("/ckpt/", name), 5);
  EXPECT_THAT(*CheckpointPrefixes(files_, "/ckpt/"),
              ElementsAre("/ckpt/ckpt-10-1", "/ckpt/ckpt-2-10", "/ckpt/ckpt-2-9", "/ckpt/other"));
  EXPECT_EQ((*OpenCheckpoint(files_, "/ckpt"))->prefix(), "/ckpt/ckpt-10-1");
  EXPECT_EQ((*OpenCheckpoint(files_, "/ckpt/other.index"))->prefix(), "/ckpt/other");
}

TEST_F(OpenCheckpointTest, OfADirectoryTheNewestWholeOneIsTaken) {
  Write("/ckpt/ckpt-1-1", 5);
  Write("/ckpt/ckpt-1-2", 7);
  ASSERT_TRUE(files_.Remove("/ckpt/ckpt-1-2.data-00000-of-00002").ok());
  EXPECT_EQ((*OpenCheckpoint(files_, "/ckpt"))->prefix(), "/ckpt/ckpt-1-1");
  EXPECT_EQ(OpenCheckpoint(files_, "/ckpt/ckpt-1-2").status().code(), absl::StatusCode::kDataLoss);
  ASSERT_TRUE(files_.FlipBit("/ckpt/ckpt-1-1.index", 3, 0).ok());
  EXPECT_EQ(OpenCheckpoint(files_, "/ckpt").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(OpenCheckpointTest, ANewestOneThatIsNoFileIsPassedOverToo) {
  Write("/ckpt/ckpt-1-1", 5);
  ASSERT_TRUE(files_.CreateDirectory("/ckpt/ckpt-1-2.index").ok());
  const auto opened = OpenCheckpoint(files_, "/ckpt");
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->prefix(), "/ckpt/ckpt-1-1");
  EXPECT_FALSE(OpenCheckpoint(files_, "/ckpt/ckpt-1-2").ok())
      << "no fallback for a checkpoint that is given by name";
}

// If a file server is away for a moment, an older checkpoint must not be mistaken for the newest.
TEST_F(OpenCheckpointTest, AnErrorThatMayPassIsNoReasonToTakeAnOlderOne) {
  Write("/ckpt/ckpt-1-1", 5);
  Write("/ckpt/ckpt-1-2", 7);
  for (const auto& error :
       {absl::UnavailableError("stale handle"), absl::PermissionDeniedError("not yours"),
        absl::ResourceExhaustedError("no descriptor"), absl::AbortedError("interrupted")}) {
    for (const char* file : {"ckpt-1-2.index", "ckpt-1-2.data-00000-of-00002"}) {
      files_.FailNext(FileOperation::kOpenForRead, file, error);
      const absl::Status status = OpenCheckpoint(files_, "/ckpt").status();
      EXPECT_THAT(status.ToString(), HasSubstr(std::string(error.message()))) << file;
      files_.FailNothingMore();
      EXPECT_EQ((*OpenCheckpoint(files_, "/ckpt"))->prefix(), "/ckpt/ckpt-1-2")
          << "after the error has passed";
    }
  }
}

TEST_F(OpenCheckpointTest, WhatIsNotThereIsSaid) {
  EXPECT_EQ(OpenCheckpoint(files_, "/ckpt").status(),
            absl::NotFoundError("no checkpoint in /ckpt: it has no file *.index"));
  EXPECT_EQ(OpenCheckpoint(files_, "/ckpt/x").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(ImportCheckpoint(files_, "/ckpt/x.safetensors", "/ckpt/y").status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(OpenCheckpointTest, OfAnotherProgramsTheOneIsTakenThatTheFileCheckpointNames) {
  for (const char* name : {"model-10", "model-9", "model-100"})
    Write(absl::StrCat("/ckpt/", name), 5);
  EXPECT_EQ((*OpenCheckpoint(files_, "/ckpt"))->prefix(), "/ckpt/model-10") << "the first by name";
  for (const char* hint :
       {"model_checkpoint_path: \"model-9\"\nall_model_checkpoint_paths: \"model-100\"\n",
        "model_checkpoint_path: \"/old/model-9\"\n"}) {
    ASSERT_TRUE(files_.ReplaceFile("/ckpt/checkpoint", hint).ok());
    EXPECT_THAT(*CheckpointPrefixes(files_, "/ckpt"),
                ElementsAre("/ckpt/model-9", "/ckpt/model-10", "/ckpt/model-100"));
  }
  for (const char* hint :
       {"", "model_checkpoint_path: \"gone\"", "model_checkpoint_path: \"", "something else"}) {
    ASSERT_TRUE(files_.ReplaceFile("/ckpt/checkpoint", hint).ok());
    EXPECT_EQ((*OpenCheckpoint(files_, "/ckpt"))->prefix(), "/ckpt/model-10") << hint;
  }
  Write("/ckpt/ckpt-1-1", 5);
  Write("/ckpt/ckpt-1-2", 5);
  ASSERT_TRUE(files_.ReplaceFile("/ckpt/checkpoint", "model_checkpoint_path: \"ckpt-1-1\"\n").ok());
  EXPECT_EQ((*OpenCheckpoint(files_, "/ckpt"))->prefix(), "/ckpt/ckpt-1-2")
      << "the file is only a hint, and ids of Divvy's own checkpoints decide";
}

// ---- to other formats and back ----

class ExchangeTest : public CheckpointFilesTest {
 protected:
  ExchangeTest() {
    Write("/ckpt/ckpt-1-1", 5);
    options_.from = "/ckpt";
    options_.to = "/out";
  }

  ExchangeOptions options_;
};

TEST_F(ExchangeTest, AnExportHasTheVariablesAloneAndComesBackAsABundle) {
  const auto exported = ExportCheckpoint(files_, options_);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->written, ElementsAre("/out/model.safetensors"));
  EXPECT_THAT(exported->left_out, ElementsAre("z: safetensors has no complex128"));
  const auto file = SafetensorsReader::Open(files_, "/out/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT((*file)->header().metadata,
              ElementsAre(Pair("divvy.checkpoint", "ckpt-1-1"), Pair("divvy.finished_steps", "5")));
  ASSERT_EQ((*file)->header().tensors.size(), 1u);

  const auto imported = ImportCheckpoint(files_, "/out/model.safetensors", "/new/start");
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_THAT(imported->written, ElementsAre("/new/start.data-00000-of-00001", "/new/start.index"));
  const auto bundle = BundleReader::Open(files_, "/new/start");
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_EQ(Bytes(**bundle, "table"), "abcdefgh");
  EXPECT_EQ(ImportCheckpoint(files_, "/out/model.safetensors", "/new/start").status().code(),
            absl::StatusCode::kAlreadyExists);
}

TEST_F(ExchangeTest, AnExportMayNameItsFileAndKeepsWhatStandsThere) {
  options_.to = "/out/towers.safetensors";
  const auto exported = ExportCheckpoint(files_, options_);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->written, ElementsAre("/out/towers.safetensors"));
  EXPECT_EQ(ExportCheckpoint(files_, options_).status().code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(ExchangeTest, AnExportMayBeABundleAndKeepsAllTypes) {
  options_.to = "/out/clean";
  options_.format = ExchangeFormat::kBundle;
  const auto exported = ExportCheckpoint(files_, options_);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->left_out, IsEmpty());
  const auto bundle = BundleReader::Open(files_, "/out/clean");
  ASSERT_TRUE(bundle.ok()) << bundle.status();
  EXPECT_FALSE((*bundle)->index().is_own());
  EXPECT_EQ((*bundle)->index().tensors.size(), 2u);
  EXPECT_EQ(Bytes(**bundle, "table"), "abcdefgh");
}

TEST_F(ExchangeTest, SeveralSafetensorsFilesBecomeOneBundle) {
  const SafetensorsSource source = [](const SafetensorsSpec& tensor, const auto& append) {
    return append(tensor.name);
  };
  ASSERT_TRUE(files_.CreateDirectory("/hf").ok());
  ASSERT_TRUE(WriteShardedSafetensors(files_, "/hf/model.safetensors",
                                      {{"ab", DType::kInt8, {2}}, {"cde", DType::kUInt8, {3, 1}}},
                                      {}, 3, source)
                  .ok());
  const auto imported = ImportCheckpoint(files_, "/hf/model.safetensors.index.json", "/ckpt/start");
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(imported->tensors, 2u);
  const auto bundle = BundleReader::Open(files_, "/ckpt/start");
  EXPECT_EQ(Bytes(**bundle, "ab"), "ab");
  EXPECT_EQ(Bytes(**bundle, "cde"), "cde");
}

TEST_F(ExchangeTest, ADamagedCheckpointIsNotExportedAndAFailureLeavesNothing) {
  ASSERT_TRUE(files_.FlipBit("/ckpt/ckpt-1-1.data-00000-of-00002", 2, 1).ok());
  options_.to = "/out/clean";
  options_.format = ExchangeFormat::kBundle;
  EXPECT_EQ(ExportCheckpoint(files_, options_).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(*files_.ListDirectory("/out"), IsEmpty());
  options_.format = ExchangeFormat::kSafetensors;
  options_.to = "/out";
  EXPECT_EQ(ExportCheckpoint(files_, options_).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(files_.Stat("/out/model.safetensors").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ExchangeTest, AnExportOfMoreThanFiveGibibytesIsCutUnlessOneAsksForAnotherSize) {
  EXPECT_EQ(options_.max_shard_bytes, 5368709120);
  const std::vector<SafetensorsSpec> specs = {{"ab", DType::kInt8, {2}},
                                              {"cde", DType::kInt8, {3}}};
  const SafetensorsSource source = [](const SafetensorsSpec& tensor, const auto& append) {
    return append(tensor.name);
  };
  ASSERT_EQ(WriteSafetensors(files_, "/ckpt/two.safetensors", specs, {}, source), absl::OkStatus());
  ASSERT_TRUE(ImportCheckpoint(files_, "/ckpt/two.safetensors", "/two/start").ok());
  options_.from = "/two";
  options_.max_shard_bytes = 3;
  const auto exported = ExportCheckpoint(files_, options_);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_THAT(exported->written, ElementsAre("/out/model-00001-of-00002.safetensors",
                                             "/out/model-00002-of-00002.safetensors",
                                             "/out/model.safetensors.index.json"));
}

TEST_F(ExchangeTest, WhatWasExportedSurvivesACrashWithTheDirectoriesThatWereMadeForIt) {
  options_.to = "/new/directory/towers.safetensors";
  ASSERT_TRUE(ExportCheckpoint(files_, options_).ok());
  ASSERT_TRUE(ImportCheckpoint(files_, options_.to, "/other/directory/start").ok());
  files_.Crash();
  EXPECT_TRUE(SafetensorsReader::Open(files_, options_.to).ok());
  EXPECT_TRUE(BundleReader::Open(files_, "/other/directory/start").ok());
}

TEST_F(ExchangeTest, ADiskThatFailsToWriteIsNoDamagedCheckpoint) {
  for (const ExchangeFormat format : {ExchangeFormat::kSafetensors, ExchangeFormat::kBundle}) {
    options_.format = format;
    options_.to = format == ExchangeFormat::kBundle ? "/out/clean" : "/out";
    for (const FileOperation operation : {FileOperation::kCreateDirectory, FileOperation::kAppend,
                                          FileOperation::kSync, FileOperation::kRename}) {
      files_.FailNext(operation, "/out", absl::DataLossError("cannot write: EIO"));
      EXPECT_EQ(ExportCheckpoint(files_, options_).status(),
                MakeError(Reason::kDisk, "cannot write: EIO"))
          << static_cast<int>(operation);
      files_.FailNothingMore();
    }
    files_.FailNext(FileOperation::kRead, "/ckpt/ckpt-1-1.data-00000",
                    absl::DataLossError("cannot read: EIO"));
    EXPECT_EQ(ExportCheckpoint(files_, options_).status(),
              absl::UnavailableError("cannot read: EIO: try again, or check the disk"));
    files_.FailNothingMore();
  }
}

// ---- a job's own exports ----

class JobExportTest : public CheckpointFilesTest {
 protected:
  // The catalog of a job that has made one checkpoint. It has the variable "table" with these
  // bytes.
  std::unique_ptr<CheckpointCatalog> Job(const std::string& directory, uint64_t job,
                                         CheckpointId checkpoint, const std::string& table) {
    auto catalog = *OpenBundleCatalog(files_, directory);
    auto file =
        *BundleDataWriter::Create(files_, absl::StrCat(directory, "/", checkpoint.name()), 0, 2);
    const BundleSlice slice = *file->Append("table", DType::kInt8, {2}, 0, 2, table);
    EXPECT_EQ(file->Finish(), absl::OkStatus());
    JobState state;
    state.job = JobId(job);
    state.checkpoint = checkpoint;
    state.lineage = checkpoint.epoch;
    state.layout = Layout::Empty();
    EXPECT_EQ(catalog->Commit(state, {{{"table", slice.dtype, slice.shape, 0, 2, slice.offset,
                                        slice.size_bytes, slice.masked_crc32c}}}),
              absl::OkStatus());
    return catalog;
  }
  std::string TableIn(const std::string& path) {
    const auto reader = OpenCheckpoint(files_, path);
    return reader.ok() ? Bytes(**reader, "table") : reader.status().ToString();
  }
  // The checkpoint that tf.train.latest_checkpoint finds.
  std::string NewestForTensorFlow(const std::string& directory) {
    const std::vector<std::string> words =
        absl::StrSplit(*files_.ReadFile(directory + "/checkpoint"), '"');
    return absl::StrCat(directory, "/", words.at(1));
  }

  const CheckpointId first_{Epoch(1), 1}, second_{Epoch(1), 2}, later_{Epoch(3), 17};
};

TEST_F(JobExportTest, AProgramThatBeginsAnewExportsIntoTheSameDirectoryAndTheNewestIsFound) {
  ASSERT_EQ(Job("/job1", 1, later_, "aa")->Export(later_, "/out", {}), absl::OkStatus());
  ASSERT_EQ(Job("/job2", 2, first_, "bb")->Export(first_, "/out", {}), absl::OkStatus());
  ASSERT_EQ(Job("/job3", 3, first_, "cc")->Export(first_, "/out", {}), absl::OkStatus());
  EXPECT_EQ(TableIn("/out"), "cc");
  EXPECT_EQ(TableIn(NewestForTensorFlow("/out")), "cc");
  ASSERT_EQ(Job("/job3", 3, second_, "dd")->Export(second_, "/out", {}), absl::OkStatus());
  EXPECT_EQ(TableIn("/out"), "dd");
  EXPECT_EQ(TableIn(NewestForTensorFlow("/out")), "dd");
  EXPECT_THAT(*ListCheckpoints(files_, "/out"), IsEmpty()) << "no job continues from an export";
}

TEST_F(JobExportTest, WhatAnExportThatWasKilledHasLeftIsInNobodysWay) {
  ASSERT_TRUE(files_.CreateDirectory("/out").ok());
  files_.FailNext(FileOperation::kRemove, "/out", absl::UnavailableError("killed"));
  files_.FailNext(FileOperation::kRename, "/out", absl::UnavailableError("killed"));
  ASSERT_FALSE(Job("/job1", 1, first_, "aa")->Export(first_, "/out", {}).ok());
  files_.FailNothingMore();
  ASSERT_EQ(Job("/job2", 2, first_, "bb")->Export(first_, "/out", {}), absl::OkStatus());
  EXPECT_EQ(TableIn("/out"), "bb");
}

TEST_F(JobExportTest, TheDirectoryOfTheCheckpointsIsRefusedByWhateverNameAndStaysAsItIs) {
  const auto catalog = Job("/job1", 1, first_, "aa");
  const std::vector<std::string> before = *files_.ListDirectory("/job1");
  for (const char* name : {"/job1", "/job1/", "//job1"}) {
    const absl::Status refused = catalog->Export(first_, name, {});
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--checkpoint_dir"));
  }
  EXPECT_EQ(*files_.ListDirectory("/job1"), before);
}

TEST_F(JobExportTest, ATimeoutLeavesNoFile) {
  const auto catalog = Job("/job1", 1, first_, "aa");
  const ExportOptions options{/*slots=*/true, /*timeout=*/absl::ZeroDuration()};
  for (const char* path : {"/out", "/out/model.safetensors"})
    EXPECT_EQ(catalog->Export(first_, path, options).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(*files_.ListDirectory("/out"), IsEmpty());
}

TEST_F(JobExportTest, ADiskThatFailsIsSaidAsTheDisks) {
  const auto catalog = Job("/job1", 1, first_, "aa");
  for (const char* file : {"data", "index", "checkpoint"}) {
    files_.FailNext(FileOperation::kOpenForWrite,
                    absl::StrCat(file, file == std::string("data") ? "-" : ".tmp"),
                    absl::DataLossError("EIO"));
    EXPECT_EQ(catalog->Export(first_, absl::StrCat("/out-", file), {}),
              MakeError(Reason::kDisk, "EIO"))
        << file;
  }
}

}  // namespace
}  // namespace divvy
