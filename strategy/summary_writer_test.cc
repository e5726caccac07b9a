#include "strategy/summary_writer.h"

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/in_memory_file_system.h"
#include "base/testing/sim_executor.h"
#include "formats/event_file.h"
#include "formats/png.h"
#include "formats/tfrecord.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

class SummaryWriterTest : public ::testing::Test {
 protected:
  SummaryWriterTest() { clock_.Advance(absl::Seconds(1700000000)); }

  // The event files of a directory, in the order in which TensorBoard reads them.
  std::vector<std::string> FilesOf(const std::string& directory) {
    std::vector<std::string> files;
    for (const std::string& name :
         files_.ListDirectory(directory).value_or(std::vector<std::string>())) {
      if (IsEventFileName(name)) files.push_back(absl::StrCat(directory, "/", name));
    }
    return files;
  }

  // "step 3: loss 0.5" for each event of a directory, without the files' versions and the start
  // event of its first file.
  std::vector<std::string> EventsOf(const std::string& directory) {
    std::vector<std::string> texts;
    for (const std::string& name : FilesOf(directory)) {
      const EventFile file = ReadEventFile(files_.ReadFile(name).value()).value();
      for (size_t i = 1; i < file.events.size(); ++i) texts.push_back(Text(file.events[i]));
    }
    if (!texts.empty()) texts.erase(texts.begin());
    return texts;
  }

  static std::string Text(const Event& event) {
    if (event.session_starts) return absl::StrCat("step ", event.step, ": start");
    return absl::StrCat(
        "step ", event.step, ": ",
        absl::StrJoin(event.values, ", ", [](std::string* out, const EventValue& value) {
          const float* scalar = std::get_if<float>(&value.data);
          absl::StrAppend(
              out, value.tag, " ",
              scalar != nullptr ? absl::StrCat(*scalar) : std::get<std::string>(value.data));
        }));
  }

  // The last event of a directory's last file, decoded and as its bytes.
  Event LastEvent(const std::string& directory) { return ReadEvent(LastRecord(directory)).value(); }
  std::string LastRecord(const std::string& directory) {
    const std::string bytes = files_.ReadFile(FilesOf(directory).back()).value();
    std::string last;
    for (size_t offset = 0; offset < bytes.size();)
      last = std::string(ReadTfRecord(bytes, offset).value().value());
    return last;
  }
  // The bytes of a value within an event.
  static std::string ValueOf(const std::string& tag, EventData data) {
    Event with;
    with.values.push_back({tag, std::move(data)});
    const std::string bytes = WriteEvent(with);
    return bytes.substr(bytes.find(tag));
  }

  InMemoryFileSystem files_;
  SimClock clock_;
};

TEST_F(SummaryWriterTest, EachRunHasAnEventFileOfItsOwn) {
  SummaryWriter summaries("/logs", files_, clock_);
  EXPECT_FALSE(files_.Stat("/logs").ok());  // not before the first point
  ASSERT_TRUE(summaries.Scalars("train", 1, {{"loss", 0.5}, {"accuracy", 0.25}}).ok());
  ASSERT_TRUE(summaries.Scalars("validation/small", 1, {{"loss", 2}}).ok());
  ASSERT_TRUE(summaries.Scalars("train", 2, {{"loss", 0.125}}).ok());
  ASSERT_TRUE(summaries.Text("", 2, "note", "# *a*").ok());
  EXPECT_THAT(EventsOf("/logs/train"),
              ElementsAre("step 1: accuracy 0.25, loss 0.5", "step 2: loss 0.125"));
  EXPECT_THAT(EventsOf("/logs/validation/small"), ElementsAre("step 1: loss 2"));
  EXPECT_THAT(EventsOf("/logs"), ElementsAre("step 2: note # *a*"));
}

TEST_F(SummaryWriterTest, FilesAreNamedAsTensorFlowNamesThem) {
  SummaryWriter summaries("/logs", files_, clock_);
  ASSERT_TRUE(summaries.Scalars("", 1, {{"loss", 0.5}}).ok());
  ASSERT_THAT(FilesOf("/logs"), ElementsAre(StartsWith("/logs/events.out.tfevents.1700000000.")));
  const EventFile file = ReadEventFile(files_.ReadFile(FilesOf("/logs")[0]).value()).value();
  EXPECT_EQ(file.events[0].file_version, "brain.Event:2");
  EXPECT_TRUE(file.events[1].session_starts);
  EXPECT_EQ(file.events[1].step, 1);
  EXPECT_EQ(file.events[2].wall_time, 1700000000);
}

TEST_F(SummaryWriterTest, NoScalarsAreNoPoint) {
  SummaryWriter summaries("/logs", files_, clock_);
  EXPECT_TRUE(summaries.Scalars("train", 1, {}).ok());
  EXPECT_FALSE(files_.Stat("/logs").ok());
}

TEST_F(SummaryWriterTest, ANumberThatIsNotFiniteIsAPointLikeAnyOther) {
  SummaryWriter summaries("/logs", files_, clock_);
  ASSERT_TRUE(summaries.Scalars("", 1, {{"loss", std::nan("")}}).ok());
  EXPECT_THAT(EventsOf("/logs"), ElementsAre("step 1: loss nan"));
}

TEST_F(SummaryWriterTest, ARunThatGoesOnSaysFromWhichStep) {
  for (const int64_t step : {10, 7}) {
    SummaryWriter summaries("/logs", files_, clock_);
    ASSERT_TRUE(summaries.Scalars("train", step, {{"loss", 1}}).ok());
    ASSERT_TRUE(summaries.Scalars("train", step + 1, {{"loss", 2}}).ok());
  }
  EXPECT_THAT(FilesOf("/logs/train"), SizeIs(2));  // of the same second
  EXPECT_THAT(EventsOf("/logs/train"),
              ElementsAre("step 10: loss 1", "step 11: loss 2", "step 7: start", "step 7: loss 1",
                          "step 8: loss 2"));
}

TEST_F(SummaryWriterTest, ARunCannotLeaveTheDirectory) {
  SummaryWriter summaries("/logs", files_, clock_);
  for (const char* run : {"..", "a/../b", "/a", "a/", "a//b", ".", "a b"}) {
    const absl::Status status = summaries.Scalars(run, 1, {{"loss", 1}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << run;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("cannot be named \"", run, "\"")));
  }
}

TEST_F(SummaryWriterTest, AfterAnErrorTheRunBeginsAnotherFile) {
  SummaryWriter summaries("/logs", files_, clock_);
  ASSERT_TRUE(summaries.Scalars("train", 1, {{"loss", 1}}).ok());
  files_.FailNext(FileOperation::kAppend, "train",
                  absl::ResourceExhaustedError("the disk is full"));
  EXPECT_EQ(summaries.Scalars("train", 2, {{"loss", 2}}).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(summaries.Scalars("train", 3, {{"loss", 3}}).ok());
  EXPECT_THAT(EventsOf("/logs/train"),
              ElementsAre("step 1: loss 1", "step 3: start", "step 3: loss 3"));
}

TEST_F(SummaryWriterTest, ADirectoryThatCannotBeMadeIsItsError) {
  files_.FailNext(FileOperation::kCreateDirectory, "/logs",
                  absl::PermissionDeniedError("not yours"));
  SummaryWriter summaries("/logs", files_, clock_);
  EXPECT_EQ(summaries.Scalars("train", 1, {{"loss", 1}}).code(),
            absl::StatusCode::kPermissionDenied);
}

TEST_F(SummaryWriterTest, WhatWasSyncedOutlivesTheMachine) {
  SummaryWriter summaries("/logs", files_, clock_);
  ASSERT_TRUE(files_.CreateDirectory("/logs").ok());
  ASSERT_TRUE(files_.SyncDirectory("/").ok());
  ASSERT_TRUE(summaries.Scalars("", 1, {{"loss", 1}}).ok());
  ASSERT_TRUE(summaries.Sync().ok());
  ASSERT_TRUE(summaries.Scalars("", 2, {{"loss", 2}}).ok());
  files_.Crash();
  EXPECT_THAT(EventsOf("/logs"), ElementsAre("step 1: loss 1"));
}

TEST_F(SummaryWriterTest, TheErrorOfASyncIsToldAndTheOtherRunsAreSynced) {
  SummaryWriter summaries("/logs", files_, clock_);
  for (const char* run : {"a", "b"}) ASSERT_TRUE(summaries.Scalars(run, 1, {{"loss", 1}}).ok());
  files_.FailNext(FileOperation::kSync, "/a/", absl::DataLossError("the disk died"));
  EXPECT_EQ(summaries.Sync().code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(summaries.Sync().ok());
}

// ---- histograms

using Buckets = std::vector<HistogramBucket>;

// left right count, left right count, ...
std::vector<double> Numbers(const EventValue& value) {
  std::vector<double> numbers;
  for (const HistogramBucket& bucket : std::get<Buckets>(value.data))
    numbers.insert(numbers.end(), {bucket.left, bucket.right, bucket.count});
  return numbers;
}

TEST_F(SummaryWriterTest, AHistogramHasBucketsOfEqualWidth) {
  SummaryWriter summaries("/logs", files_, clock_);
  const Tensor data = Tensor::Vector<float>({-1, 0, 0.5, 1});
  ASSERT_TRUE(summaries.Histogram("", 3, "weights/w", data, 2).ok());
  const Event event = LastEvent("/logs");
  EXPECT_EQ(event.step, 3);
  EXPECT_EQ(event.values[0].tag, "weights/w");
  EXPECT_THAT(Numbers(event.values[0]), ElementsAre(-1, 0, 1, 0, 1, 3));
}

TEST_F(SummaryWriterTest, AHistogramOfEqualValuesHasThemInItsLastBucket) {
  SummaryWriter summaries("/logs", files_, clock_);
  ASSERT_TRUE(summaries.Histogram("", 3, "w", Tensor::Vector<int32_t>({5, 5}), 2).ok());
  EXPECT_THAT(Numbers(LastEvent("/logs").values[0]), ElementsAre(5, 5, 0, 5, 5, 2));
}

TEST_F(SummaryWriterTest, AHistogramOfNothingIsAllZero) {
  SummaryWriter summaries("/logs", files_, clock_);
  ASSERT_TRUE(summaries.Histogram("", 3, "w", Tensor(), 2).ok());
  EXPECT_THAT(Numbers(LastEvent("/logs").values[0]), ElementsAre(0, 0, 0, 0, 0, 0));
}

TEST_F(SummaryWriterTest, TheWidestHistogramHasFiniteEdges) {
  SummaryWriter summaries("/logs", files_, clock_);
  const double most = std::numeric_limits<double>::max();
  ASSERT_TRUE(summaries.Histogram("", 3, "w", Tensor::Vector<double>({-most, most}), 2).ok());
  EXPECT_THAT(Numbers(LastEvent("/logs").values[0]), ElementsAre(-most, 0, 1, 0, most, 1));
}

TEST_F(SummaryWriterTest, HistogramsOfOneStepAreOneRecord) {
  SummaryWriter summaries("/logs", files_, clock_);
  ASSERT_TRUE(summaries.Histograms("train", 4, {}).ok());
  EXPECT_FALSE(files_.Stat("/logs").ok());
  ASSERT_TRUE(summaries.Histograms("train", 4, {{"a", {0, 2, {1, 2}}}, {"b", {1, 1, {7}}}}).ok());
  const Event event = LastEvent("/logs/train");
  ASSERT_THAT(event.values, SizeIs(2));
  EXPECT_THAT(Numbers(event.values[0]), ElementsAre(0, 1, 1, 1, 2, 2));
  EXPECT_THAT(Numbers(event.values[1]), ElementsAre(1, 1, 7));
}

TEST_F(SummaryWriterTest, AHistogramThatCannotBeShownIsRefused) {
  SummaryWriter summaries("/logs", files_, clock_);
  const Tensor good = Tensor::Vector<float>({1});
  EXPECT_EQ(summaries.Histogram("", 1, "w", Tensor::Vector<float>({1, std::nanf(""), INFINITY})),
            absl::InvalidArgumentError(
                "histogram \"w\": 2 of 3 values are NaN or infinite, and no bucket takes them: "
                "leave them out, or write their number with Scalars"));
  for (const int buckets : {0, -1, 10'001}) {
    EXPECT_EQ(summaries.Histogram("", 1, "w", good, buckets),
              absl::InvalidArgumentError(absl::StrCat("histogram \"w\": it has ", buckets,
                                                      " buckets; wanted 1 to 10000")));
  }
  EXPECT_EQ(
      summaries.Histogram("", 1, "", good),
      absl::InvalidArgumentError("a TensorBoard series needs a name, such as \"weights/kernel\""));
  EXPECT_EQ(summaries.Histogram("a b", 1, "w", good).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(files_.Stat("/logs").ok());
}

// ---- images

TEST_F(SummaryWriterTest, ImagesAreWrittenAsPngFilesOfTheFirstOnes) {
  SummaryWriter summaries("/logs", files_, clock_);
  const Tensor images = *Tensor::Copy<uint8_t>({3, 1, 2, 1}, {1, 2, 3, 4, 5, 6});
  ASSERT_TRUE(summaries.Image("train", 5, "digits", images, 2).ok());
  const EventImages wanted{2, 1, {WritePng(2, 1, 1, "\1\2"), WritePng(2, 1, 1, "\3\4")}};
  EXPECT_THAT(LastRecord("/logs/train"), HasSubstr(ValueOf("digits", wanted)));
}

TEST_F(SummaryWriterTest, AnImageMayHaveNoDimensionForTheirNumber) {
  SummaryWriter summaries("/logs", files_, clock_);
  ASSERT_TRUE(summaries.Image("", 5, "x", *Tensor::Copy<uint8_t>({1, 1, 3}, {10, 20, 30})).ok());
  EXPECT_THAT(LastRecord("/logs"),
              HasSubstr(ValueOf("x", EventImages{1, 1, {WritePng(1, 1, 3, "\n\x14\x1e")}})));
}

TEST_F(SummaryWriterTest, FloatingPixelsAreFrom0To1AndClipped) {
  const std::string wanted("\x00\x00\x7f\xff\xff", 5);
  const std::string png = WritePng(5, 1, 1, wanted);
  const Tensor floats = *Tensor::Copy<float>({1, 5, 1}, {-3, 0, 0.5, 1, INFINITY});
  const Tensor doubles = *Tensor::Copy<double>({1, 5, 1}, {-3, 0, 0.5, 1, INFINITY});
  std::vector<Half> halves;
  for (const float pixel : {-3.f, 0.f, 0.5f, 1.f, INFINITY})
    halves.push_back(Half::FromFloat(pixel));
  for (const Tensor& pixels : {floats, doubles, *Tensor::Copy<Half>({1, 5, 1}, halves)}) {
    SummaryWriter summaries("/logs", files_, clock_);
    ASSERT_TRUE(summaries.Image("", 5, "x", pixels).ok());
    EXPECT_THAT(LastRecord("/logs"), HasSubstr(ValueOf("x", EventImages{5, 1, {png}})))
        << DTypeName(pixels.dtype());
  }
}

TEST_F(SummaryWriterTest, ImagesThatCannotBeShownAreRefused) {
  SummaryWriter summaries("/logs", files_, clock_);
  const auto refusal = [&](const Tensor& images, int max_outputs = 3) {
    return std::string(summaries.Image("", 1, "x", images, max_outputs).message());
  };
  EXPECT_EQ(refusal(*Tensor::Zeros(DType::kInt32, {1, 1, 1})),
            "image \"x\": the pixels are int32 [1, 1, 1]; wanted uint8 (0 to 255) or a floating "
            "dtype (0 to 1)");
  EXPECT_EQ(refusal(*Tensor::Zeros(DType::kUInt8, {28, 28})),
            "image \"x\": the pixels are uint8 [28, 28]; wanted [height, width, channels], or [n, "
            "height, width, channels] for several images");
  EXPECT_EQ(refusal(*Tensor::Zeros(DType::kUInt8, {3, 28, 28})),
            "image \"x\": the pixels are uint8 [3, 28, 28]: the last dimension is the channels, "
            "from 1 (gray) to 4 (red, green, blue, alpha)");
  EXPECT_EQ(refusal(*Tensor::Zeros(DType::kUInt8, {0, 28, 28, 1})),
            "image \"x\": the pixels are uint8 [0, 28, 28, 1]: none");
  EXPECT_EQ(refusal(*Tensor::Uninitialized(DType::kUInt8, {1 << 14, (1 << 12) + 1, 1})),
            "image \"x\": one image has 67125248 values, more than 67108864: make it smaller");
  EXPECT_EQ(refusal(*Tensor::Zeros(DType::kUInt8, {1, 1, 1}), 0),
            "image \"x\": max_outputs is 0; wanted at least 1");
  EXPECT_EQ(refusal(*Tensor::Copy<float>({1, 1, 1}, {std::nanf("")})),
            "image \"x\": a pixel is NaN; wanted 0 to 1");
  EXPECT_EQ(summaries.Image("", 1, "", *Tensor::Zeros(DType::kUInt8, {1, 1, 1})).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_FALSE(files_.Stat("/logs").ok());
}

// ---- hyperparameters

TEST_F(SummaryWriterTest, HyperparametersAreWrittenWithTheirTypes) {
  SummaryWriter summaries("/logs", files_, clock_);
  ASSERT_TRUE(
      summaries.HParams("", 7, {{"adam", true}, {"layers", 3}, {"rate", 0.5f}, {"name", "wide"}})
          .ok());
  EXPECT_EQ(LastEvent("/logs").step, 7);
  const std::string record = LastRecord("/logs");
  const std::string group = record.substr(record.find("\"\x10") + 2, 16);
  EXPECT_THAT(
      record,
      HasSubstr(ValueOf(
          "_hparams_/session_start_info",
          EventHParams{
              group,
              1700000000,
              {{"adam", true}, {"layers", 3.0}, {"rate", 0.5}, {"name", std::string("wide")}}})));
}

TEST_F(SummaryWriterTest, EqualHyperparametersAreOneGroup) {
  SummaryWriter summaries("/logs", files_, clock_);
  const auto group_of = [&](const std::map<std::string, HParam>& hparams) {
    EXPECT_TRUE(summaries.HParams("", 7, hparams).ok());
    const std::string record = LastRecord("/logs");
    return record.substr(record.find("\"\x10") + 2, 16);
  };
  const std::string group = group_of({{"a", 1}, {"b", "x"}});
  EXPECT_EQ(group_of({{"b", "x"}, {"a", 1.0}}), group);
  EXPECT_NE(group_of({{"a", "1"}, {"b", "x"}}), group);
  EXPECT_NE(group_of({{"a", 1}, {"b", "y"}}), group);
}

// Protobuf's readers refuse a record with such text, and TensorBoard then shows no run at all.
TEST_F(SummaryWriterTest, TextThatIsNotUtf8IsRefusedAndNamed) {
  SummaryWriter summaries("/logs", files_, clock_);
  const std::string bad = "caf\xe9";
  const auto refusal = [](const std::string& what) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, " is not UTF-8, and TensorBoard could not read it: \"caf\\xe9\"; convert it"));
  };
  const absl::Status bad_name = refusal("the name of a TensorBoard series");
  EXPECT_EQ(summaries.Scalars("", 1, {{"loss", 1}, {bad, 1}}), bad_name);
  EXPECT_EQ(summaries.Histogram("", 1, bad, Tensor::Vector<float>({1})), bad_name);
  EXPECT_EQ(summaries.Image("", 1, bad, *Tensor::Copy<uint8_t>({1, 1, 1}, {1})), bad_name);
  EXPECT_EQ(summaries.Text("", 1, bad, "good"), bad_name);
  EXPECT_EQ(summaries.Text("", 1, "note", bad), refusal("text \"note\""));
  EXPECT_EQ(summaries.HParams("", 1, {{bad, 1}}), refusal("hparams: a name"));
  EXPECT_EQ(summaries.HParams("", 1, {{"drink", bad}}), refusal("hparams: the value of \"drink\""));
  EXPECT_FALSE(files_.Stat("/logs").ok());
  EXPECT_TRUE(summaries.HParams("", 1, {{"drink", "caf\xc3\xa9"}}).ok());
}

TEST_F(SummaryWriterTest, HyperparametersThatCannotBeShownAreRefused) {
  SummaryWriter summaries("/logs", files_, clock_);
  EXPECT_EQ(summaries.HParams("", 1, {}),
            absl::InvalidArgumentError("hparams: there is none; give at least one"));
  EXPECT_EQ(summaries.HParams("", 1, {{"", 1}}),
            absl::InvalidArgumentError("hparams: a hyperparameter has no name"));
  EXPECT_EQ(summaries.HParams("", 1, {{"rate", INFINITY}}),
            absl::InvalidArgumentError("hparams: \"rate\" is inf; wanted a finite number"));
  EXPECT_FALSE(files_.Stat("/logs").ok());
}

}  // namespace
}  // namespace divvy
