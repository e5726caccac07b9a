#include "strategy/summary_writer.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/testing/in_memory_file_system.h"
#include "base/testing/sim_executor.h"
#include "formats/event_file.h"
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

}  // namespace
}  // namespace divvy
