#include "coordinator/report/event_recorder.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/testing/in_memory_file_system.h"
#include "formats/event_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

class EventRecorderTest : public ::testing::Test {
 protected:
  // The steps that have a value of this tag in the run "train", in the order of the file.
  std::vector<int64_t> StepsOf(const std::string& tag) {
    std::vector<int64_t> steps;
    const std::vector<std::string> names = files_.ListDirectory("/logs/train").value();
    for (const std::string& name : names) {
      const EventFile file =
          ReadEventFile(files_.ReadFile(absl::StrCat("/logs/train/", name)).value()).value();
      for (const Event& event : file.events) {
        if (!event.values.empty() && event.values[0].tag == tag) steps.push_back(event.step);
      }
    }
    return steps;
  }

  InMemoryFileSystem files_;
  ThreadPoolExecutor executor_{1};
  const std::shared_ptr<EventRecorder> recorder_ = std::make_shared<EventRecorder>(
      std::make_unique<SummaryWriter>("/logs", files_, Clock::Real()), executor_);
};

TEST_F(EventRecorderTest, PointsAreWrittenInTheirOrderAndAreThereWhenFinished) {
  std::vector<int64_t> wanted;
  for (int64_t step = 1; step <= 500; ++step) {
    recorder_->Scalars("train", step, {{"loss", 1.0}});
    wanted.push_back(step);
  }
  recorder_->Text("train", 500, "note", "all of them");
  recorder_->Finish();
  EXPECT_EQ(StepsOf("loss"), wanted);
  EXPECT_EQ(StepsOf("note"), std::vector<int64_t>{500});
}

TEST_F(EventRecorderTest, HistogramsAndHyperparametersAreWrittenInTheirOrder) {
  recorder_->Histograms("train", 3, {{"weights/w", {0, 1, {1, 2}}}});
  recorder_->HParams("train", 4, {{"rate", 0.5}});
  recorder_->Finish();
  EXPECT_EQ(StepsOf("weights/w"), std::vector<int64_t>{3});
  EXPECT_EQ(StepsOf("_hparams_/session_start_info"), std::vector<int64_t>{4});
}

TEST_F(EventRecorderTest, FinishMayComeAgainAndPointsBehindIt) {
  recorder_->Finish();
  recorder_->Scalars("train", 1, {{"loss", 1.0}});
  recorder_->Finish();
  EXPECT_EQ(StepsOf("loss"), std::vector<int64_t>{1});
}

TEST_F(EventRecorderTest, APointThatCannotBeWrittenIsLostAlone) {
  recorder_->Scalars("train", 1, {{"loss", 1.0}});
  recorder_->Finish();
  files_.FailNext(FileOperation::kAppend, "train",
                  absl::ResourceExhaustedError("the disk is full"));
  recorder_->Scalars("train", 2, {{"loss", 1.0}});
  recorder_->Scalars("train", 3, {{"loss", 1.0}});
  recorder_->Finish();
  EXPECT_EQ(StepsOf("loss"), (std::vector<int64_t>{1, 3}));
}

}  // namespace
}  // namespace divvy
