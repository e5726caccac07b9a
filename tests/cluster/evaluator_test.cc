// The evaluator beside a job, both in this process and one thread. The job continues while the
// evaluator scores, so the order of events is fixed.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/file_system.h"
#include "base/status_macros.h"
#include "coordinator/checkpoint/bundle_catalog.h"
#include "coordinator/checkpoint/job_end.h"
#include "divvy.h"
#include "formats/event_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "program/evaluator_task.h"

namespace divvy {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const VariableSpec kCount{"count", {}, Zeros(), {}, DType::kInt64};
const VariableSpec kWeights{"weights", {8, 2}, Ones(), Adam{0.1}};

absl::Status Descend(ReplicaContext& replica) {
  GradientTape tape(replica);
  return replica.ApplyGradients(tape.Gradient(ReduceSum(Square(tape.Read("weights")))));
}
absl::Status Count(WorkerContext& worker) {
  RETURN_IF_ERROR(worker.strategy().Run(Descend).status());
  ASSIGN_OR_RETURN(Variable count, worker.strategy().FindVariable("count"));
  return count.AssignAdd(Tensor::Scalar<int64_t>(1));
}
const Step kCountStep("test/evaluator/count", Count);

// A model over the job's own weights.
struct Weights : Layer {
  Weights() { variables = {kWeights}; }
};
ModelOutput Score(GradientTape& tape, const Nest& batch) {
  const Var y = MatMul(batch["x"], tape.Read("weights"));
  return {ReduceMean(y), {}, {{"y", y}}};
}
const Model kScorer("scorer", {Weights()}, Score);
absl::StatusOr<Dataset> ThreeRows(const InputContext&) {
  ASSIGN_OR_RETURN(Tensor x, Tensor::Copy<float>({3, 8}, std::vector<float>(24, 1)));
  return Dataset::FromTensorSlices({{"x", Nest(std::move(x))}}).Batch(2);
}
const DataSource kThreeRows("three rows", ThreeRows);

// A job with one worker, which runs on this thread when the test lets it.
class EvaluatorTest : public ::testing::Test {
 protected:
  EvaluatorTest() {
    EmbeddedSetup setup;
    setup.options.num_workers = 1;
    setup.options.checkpoint_dir = directory_;
    setup.coordinator.core.keep_checkpoints = 2;
    job_ = *EmbeddedCluster::Start(setup);
    for (const VariableSpec& spec : {kCount, kWeights})
      EXPECT_TRUE(job_->coordinator().strategy().CreateVariable(spec).ok());
  }
  // Trains for `steps` steps and saves a checkpoint.
  std::string TrainAndSave(int steps) {
    for (int i = 0; i < steps; ++i) EXPECT_TRUE(job_->coordinator().Schedule(kCountStep).ok());
    EXPECT_TRUE(job_->coordinator().Join(absl::InfiniteDuration()).ok());
    return job_->coordinator().SaveCheckpoint().value_or("");
  }
  // Ends the job as the chief's process does.
  void EndJob(int exit_code = 0) {
    const absl::Status result =
        exit_code == 0 ? absl::OkStatus() : absl::InvalidArgumentError("the program's own");
    EXPECT_EQ(job_->coordinator().Finish(result), result);
    EXPECT_TRUE(WriteJobEnd(FileSystem::Real(), directory_, exit_code).ok());
  }
  static std::unique_ptr<EvaluatorTask> MakeEvaluator(const std::string& directory,
                                                      const std::string& tensorboard_dir = "") {
    EvaluatorOptions options;
    options.cluster.options.num_ps = 1;
    options.cluster.options.num_workers = 1;
    options.cluster.options.checkpoint_dir = directory;
    options.tensorboard_dir = tensorboard_dir;
    options.look_every = absl::Milliseconds(1);
    return *EvaluatorTask::Start(std::move(options));
  }
  // Notes the step of each scored checkpoint, then lets the job continue: after[i] runs after score
  // number i.
  absl::Status Watch(EvaluatorTask& evaluator, std::vector<std::function<void()>> after) {
    return evaluator.Watch([this, after](Coordinator& restored) -> absl::Status {
      ASSIGN_OR_RETURN(Variable count, restored.strategy().FindVariable("count"));
      ASSIGN_OR_RETURN(const Tensor value, count.Read());
      EXPECT_EQ(*value.scalar<int64_t>(), restored.step());
      scored_.push_back(restored.step());
      if (scored_.size() <= after.size()) after[scored_.size() - 1]();
      return absl::OkStatus();
    });
  }
  void FlipAByteOf(const std::string& file) {
    const std::string path = absl::StrCat(directory_, "/", file);
    std::string bytes = *FileSystem::Real().ReadFile(path);
    bytes[bytes.size() / 2] ^= 1;
    ASSERT_TRUE(FileSystem::Real().ReplaceFile(path, bytes).ok());
  }
  std::vector<std::string> Files() { return *FileSystem::Real().ListDirectory(directory_); }

  const std::string name_ = ::testing::UnitTest::GetInstance()->current_test_info()->name();
  const std::string directory_ = absl::StrCat(::testing::TempDir(), "/evaluator_", name_);
  std::unique_ptr<EmbeddedCluster> job_;
  std::vector<int64_t> scored_;
};

TEST_F(EvaluatorTest, ScoresTheNewestThatIsThereThenEachNewOneAndTheFinalOneInTheEnd) {
  TrainAndSave(2);
  TrainAndSave(1);
  const auto evaluator = MakeEvaluator(directory_);
  const auto two_more = [&] { TrainAndSave(2), TrainAndSave(1); };
  const auto one_more_step = [&] {
    EXPECT_TRUE(job_->coordinator().Schedule(kCountStep).ok());
    EndJob();
  };
  const absl::Status watched = Watch(*evaluator, {two_more, [] {}, one_more_step});
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_THAT(scored_, ElementsAre(3, 5, 6, 7));
  EXPECT_EQ(evaluator->exit_code(), 0);
  EXPECT_THAT(evaluator->StatusText(), HasSubstr("; the job is over"));
}

TEST_F(EvaluatorTest, PredictsWithWhatACheckpointHolds) {
  TrainAndSave(4);
  const float weight =
      (*job_->coordinator().strategy().FindVariable("weights")->Read()->values<float>())[0];
  EndJob();
  int predictions = 0;
  const absl::Status watched =
      MakeEvaluator(directory_)->Watch([&](Coordinator& restored) -> absl::Status {
        ASSIGN_OR_RETURN(const Outputs outputs, Predict(restored, kScorer, kThreeRows()));
        EXPECT_EQ(outputs.at("y").shape(), (Shape{3, 2}));
        EXPECT_FLOAT_EQ((*outputs.at("y").values<float>())[5], 8 * weight);
        ++predictions;
        return absl::OkStatus();
      });
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_EQ(predictions, 1);
}

TEST_F(EvaluatorTest, AJobThatIsOverHasItsFinalCheckpointScored) {
  TrainAndSave(4);
  EndJob();
  const auto evaluator = MakeEvaluator(directory_);
  EXPECT_TRUE(Watch(*evaluator, {}).ok());
  EXPECT_THAT(scored_, ElementsAre(4));
}

TEST_F(EvaluatorTest, EndsWithTheExitCodeOfAJobThatFailed) {
  TrainAndSave(1);
  const auto evaluator = MakeEvaluator(directory_);
  EXPECT_TRUE(Watch(*evaluator, {[&] { EndJob(1); }}).ok());
  EXPECT_EQ(evaluator->exit_code(), 1);
}

TEST_F(EvaluatorTest, OnesThatTheJobRemovesBeforeTheirTurnAreLeftOut) {
  TrainAndSave(1);
  const auto evaluator = MakeEvaluator(directory_);
  // Old checkpoints are removed in the background. The job saves until the first of these is gone.
  int64_t saved_step = 1;
  const auto more_until_one_is_removed = [&] {
    const std::string second = TrainAndSave(1) + ".index";
    for (saved_step = 2; FileSystem::Real().Stat(absl::StrCat(directory_, "/", second)).ok();
         ++saved_step)
      TrainAndSave(1);
    EndJob();
  };
  EXPECT_TRUE(Watch(*evaluator, {more_until_one_is_removed}).ok());
  EXPECT_EQ(scored_.front(), 1);
  EXPECT_EQ(scored_.back(), saved_step);
  EXPECT_THAT(scored_, Not(Contains(2)));
}

TEST_F(EvaluatorTest, ADamagedOneIsPassedOver) {
  TrainAndSave(1);
  const auto evaluator = MakeEvaluator(directory_);
  const auto damage = [&] {
    FlipAByteOf(absl::StrCat(TrainAndSave(1), ".data-00000-of-00003"));
    TrainAndSave(1);
  };
  const absl::Status watched = Watch(*evaluator, {damage, [&] { EndJob(); }});
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_THAT(scored_, ElementsAre(1, 3, 3));
}

TEST_F(EvaluatorTest, ADamagedFinalOneIsAnError) {
  TrainAndSave(1);
  const auto evaluator = MakeEvaluator(directory_);
  const auto damage = [&] {
    EndJob();
    FlipAByteOf(
        absl::StrCat(ListCheckpoints(FileSystem::Real(), directory_)->front().name(), ".index"));
  };
  const absl::Status watched = Watch(*evaluator, {damage});
  EXPECT_TRUE(absl::IsDataLoss(watched)) << watched;
  EXPECT_THAT(std::string(watched.message()), HasSubstr(".index"));
}

TEST_F(EvaluatorTest, TheFirstErrorOfAScoreEndsIt) {
  TrainAndSave(1);
  const auto evaluator = MakeEvaluator(directory_);
  const absl::Status watched =
      evaluator->Watch([](Coordinator&) { return absl::OutOfRangeError("the score's own"); });
  EXPECT_EQ(watched, absl::OutOfRangeError("the score's own"));
}

TEST_F(EvaluatorTest, WhatItWritesIsNobodysAndTheDirectoryStaysAsItIs) {
  TrainAndSave(1);
  EndJob();
  const std::vector<std::string> before = Files();
  const auto evaluator = MakeEvaluator(directory_);
  const absl::Status watched = evaluator->Watch([](Coordinator& restored) -> absl::Status {
    ASSIGN_OR_RETURN(Variable count, restored.strategy().FindVariable("count"));
    RETURN_IF_ERROR(count.Assign(Tensor::Scalar<int64_t>(0)));
    const absl::Status saved = restored.SaveCheckpoint().status();
    EXPECT_THAT(std::string(saved.message()), HasSubstr("an evaluator makes no checkpoints"));
    EXPECT_EQ(restored.Export("model.safetensors"), saved);
    return absl::OkStatus();
  });
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_EQ(Files(), before);
}

TEST_F(EvaluatorTest, ScoresStandBelowItsOwnRunWhateverTheyAreCalled) {
  TrainAndSave(3);
  EndJob();
  const std::string logs = absl::StrCat(directory_, "_logs");
  const auto evaluator = MakeEvaluator(directory_, logs);
  const absl::Status watched = evaluator->Watch([](Coordinator& restored) -> absl::Status {
    const Metric accuracy = Metric::Mean(1, 2);
    RETURN_IF_ERROR(restored.Report("evaluator", restored.step(), {{"accuracy", accuracy}}));
    return restored.Report("validation", restored.step(), {{"accuracy", accuracy}});
  });
  EXPECT_TRUE(watched.ok()) << watched;
  evaluator->Flush();
  for (const std::string run : {"evaluator", "evaluator/validation"}) {
    std::vector<Event> events;
    const std::vector<std::string> names =
        FileSystem::Real().ListDirectory(absl::StrCat(logs, "/", run)).value();
    for (const std::string& name : names) {
      if (!IsEventFileName(name)) continue;
      const EventFile file =
          ReadEventFile(
              FileSystem::Real().ReadFile(absl::StrCat(logs, "/", run, "/", name)).value())
              .value();
      for (const Event& event : file.events) {
        if (!event.values.empty()) events.push_back(event);
      }
    }
    ASSERT_EQ(events.size(), 1u) << run;
    EXPECT_EQ(events[0].step, 3);
    EXPECT_EQ(events[0].values[0].tag, "accuracy");
  }
}

TEST(EvaluatorOptionsTest, WithoutADirectoryTheFlagIsNamed) {
  const absl::Status refused = EvaluatorTask::Start({}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("--checkpoint_dir"));
}

TEST(JobEndTest, SaysHowTheJobEndedUntilItGoesOn) {
  FileSystem& files = FileSystem::Real();
  const std::string directory = absl::StrCat(::testing::TempDir(), "/job_end");
  ASSERT_TRUE(files.CreateDirectory(directory).ok());
  EXPECT_EQ(*ReadJobEnd(files, directory), std::nullopt);
  EXPECT_TRUE(RemoveJobEnd(files, directory).ok()) << "there is nothing to remove";
  ASSERT_TRUE(WriteJobEnd(files, directory, 65).ok());
  EXPECT_EQ(*ReadJobEnd(files, directory), 65);
  ASSERT_TRUE(RemoveJobEnd(files, directory).ok());
  EXPECT_EQ(*ReadJobEnd(files, directory), std::nullopt);
  for (const std::string bad : {"", "exit_code: ", "exit_code: 0", "exit_code: x\n", "0\n"}) {
    ASSERT_TRUE(files.ReplaceFile(directory + "/job_over", bad).ok());
    EXPECT_TRUE(absl::IsDataLoss(ReadJobEnd(files, directory).status())) << bad;
  }
}

}  // namespace
}  // namespace divvy
