#include "coordinator/report/reporter.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/testing/in_memory_file_system.h"
#include "base/testing/sim_executor.h"
#include "formats/event_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;
using ::testing::StartsWith;

using Work = CoordinatorSnapshot::Work;

constexpr char kErase[] = "\r\x1b[2K";

// A terminal that is stopped takes no line, and the status page is answered nevertheless. A call
// that waited for the line would never return here, because it is made while the line is written.
TEST(ReporterTest, WhatTheJobHasReachedIsToldWhileALineIsWritten) {
  SimExecutor executor(1);
  std::string written;
  std::shared_ptr<Reporter> reporter;
  ReportOptions options;
  options.write = [&](absl::string_view text) {
    written += std::string(text);
    EXPECT_EQ(reporter->reached().examples, 0);
    EXPECT_EQ(reporter->reached().loss, std::nullopt);
  };
  reporter = std::make_shared<Reporter>(std::move(options), executor, Clock::Real());
  reporter->OnReport("evaluation", 3, {});
  EXPECT_THAT(written, HasSubstr("evaluation: "));
}

struct FakeJob : public ReportedJob {
  bool IsRunning() const override { return running; }
  int64_t Step() const override { return snapshot.finished_steps; }
  std::shared_ptr<const Layout> Variables() const override { return layout; }
  void Read(std::vector<VariableRead> reads,
            std::function<void(absl::StatusOr<std::vector<Tensor>>)> done) override {
    done(std::vector<Tensor>(reads.size(), Tensor::Vector<float>({1, 2})));
  }
  void WantGradients() override { ++wanted; }
  GradientSample TakeGradients() override { return {}; }
  std::map<uint64_t, int64_t> TakeStaleness() override { return {}; }
  CoordinatorSnapshot Snapshot() const override { return snapshot; }
  int64_t epoch() const override { return 0; }
  uint64_t TakeMaxStaleness() override { return 0; }
  void SampleSteps() override { sampled = true; }
  std::map<int, WorkerSteps> TakeWorkerSteps() override { return std::exchange(workers, {}); }

  CoordinatorSnapshot snapshot;
  std::shared_ptr<const Layout> layout = Layout::Empty();
  std::map<int, WorkerSteps> workers;
  bool running = true, sampled = false;
  int wanted = 0;
};

class ReporterOfJobTest : public ::testing::Test {
 protected:
  ReporterOfJobTest() {
    options_.write = [this](absl::string_view text) { written_.emplace_back(text); };
    job_->snapshot.num_ps = job_->snapshot.ps_up = 2;
    // A clock may have run for long when a job begins.
    Run(absl::Hours(1));
  }
  void Start() {
    reporter_ =
        std::make_shared<Reporter>(options_, executor_, executor_.clock(), /*files=*/files_);
    reporter_->Watch(job_);
  }
  void Run(absl::Duration time) { executor_.RunFor(time); }
  void BeginLoop() { reporter_->OnLoopBegin(*job_->layout, StepKind::kTraining); }
  // So many steps of worker 0 finish.
  void Finish(int64_t steps) {
    job_->workers[0].steps += steps;
    job_->workers[0].took += absl::Seconds(steps);
    job_->snapshot.finished_steps += steps;
    for (int64_t i = 0; i < steps; ++i) reporter_->OnStep({{"loss", Metric::Mean(1, 1)}});
  }

  std::vector<Event> EventsOf(const std::string& run) {
    std::vector<Event> events;
    const std::string directory = absl::StrCat("/logs", run.empty() ? "" : "/", run);
    const auto names = files_.ListDirectory(directory);
    for (const std::string& name : names.value_or(std::vector<std::string>())) {
      if (!IsEventFileName(name)) continue;
      const std::string bytes = files_.ReadFile(absl::StrCat(directory, "/", name)).value();
      auto file = ReadEventFile(bytes).value();
      for (Event& event : file.events) events.push_back(std::move(event));
    }
    return events;
  }
  // (step, value) of each point.
  std::vector<std::pair<int64_t, float>> Series(const std::string& run, const std::string& tag) {
    std::vector<std::pair<int64_t, float>> series;
    for (const Event& event : EventsOf(run)) {
      for (const EventValue& value : event.values) {
        if (value.tag == tag) series.emplace_back(event.step, std::get<float>(value.data));
      }
    }
    return series;
  }
  int Count(const std::string& run, const std::string& tag) {
    int count = 0;
    for (const Event& event : EventsOf(run)) {
      for (const EventValue& value : event.values) count += value.tag == tag;
    }
    return count;
  }

  InMemoryFileSystem files_;
  SimExecutor executor_{1};
  ReportOptions options_;
  std::vector<std::string> written_;
  const std::shared_ptr<FakeJob> job_ = std::make_shared<FakeJob>();
  std::shared_ptr<Reporter> reporter_;
};

// ---- the line

class LiveLineTest : public ReporterOfJobTest {
 protected:
  LiveLineTest() { options_.terminal = {/*interactive=*/true, /*color=*/false, /*width=*/80}; }
};

TEST_F(LiveLineTest, WorkOutsideALoopIsShownAndErasedWhenItIsOver) {
  Start();
  job_->snapshot.work = Work{Work::Kind::kRestore, 1 << 20, 4 << 20, absl::Milliseconds(900)};
  Run(absl::Milliseconds(200));
  EXPECT_THAT(written_, IsEmpty()) << "it has just begun";
  job_->snapshot.work->since = absl::Seconds(2);
  Run(absl::Milliseconds(200));
  ASSERT_THAT(written_, SizeIs(1));
  EXPECT_THAT(written_[0], StartsWith(absl::StrCat(kErase,
                                                   "step 0  restore 25 % of 4 MiB, 6.0 s "
                                                   "left  ")));
  job_->snapshot.work.reset();
  Run(absl::Seconds(1));
  ASSERT_THAT(written_, SizeIs(2)) << "erased once";
  EXPECT_EQ(written_[1], kErase);
}

TEST_F(LiveLineTest, TheShareOfWorkAndItsTimeFitIntoEightyColumns) {
  Start();
  BeginLoop();
  job_->snapshot.progress = CoordinatorSnapshot::Progress{false, 18, 837, 1350};
  job_->snapshot.work = Work{Work::Kind::kCheckpoint, 117 << 20, 260 << 20, absl::Seconds(10)};
  reporter_->OnGoal(30);
  reporter_->OnStep({{"loss", Metric::Mean(0.3, 100)}, {"accuracy", Metric::Mean(99, 100)}});
  Run(absl::Milliseconds(200));
  ASSERT_FALSE(written_.empty());
  EXPECT_EQ(written_.back().substr(0, sizeof(kErase) - 1), kErase);
  const std::string line = written_.back().substr(sizeof(kErase) - 1);
  EXPECT_EQ(line.size(), 79u) << line;
  EXPECT_THAT(line, StartsWith("epoch 19/30  62 %  step 837/1,350  checkpoint 45 % of 260 MiB, "
                               "12.2 s left  "));
}

TEST_F(ReporterOfJobTest, WorkIsALineOfItsOwnWhereThereIsNoTerminal) {
  Start();
  Run(absl::Seconds(5));
  EXPECT_THAT(written_, IsEmpty());
  job_->snapshot.work = Work{Work::Kind::kReplay, 12, 100, absl::Seconds(6)};
  Run(absl::Seconds(5));
  ASSERT_THAT(written_, SizeIs(1));
  EXPECT_THAT(written_[0], StartsWith("step 0  replay 12 % of 100 steps, 44.0 s left  "));
  EXPECT_THAT(written_[0], EndsWith("\n"));
  job_->snapshot.work.reset();
  Run(absl::Seconds(10));
  EXPECT_THAT(written_, SizeIs(1));
}

// ---- event files

class EventsTest : public ReporterOfJobTest {
 protected:
  EventsTest() { options_.tensorboard_dir = "/logs"; }
};

TEST_F(EventsTest, WithoutADirectoryNothingIsSampledOrWritten) {
  options_.tensorboard_dir = "";
  options_.hparams = {{"rate", 0.5}};
  options_.histograms_every = absl::Seconds(1);
  Start();
  BeginLoop();
  Finish(3);
  Run(absl::Seconds(10));
  reporter_->OnLoopEnd();
  reporter_->OnEnd();
  EXPECT_FALSE(job_->sampled);
  EXPECT_FALSE(files_.Stat("/logs").ok());
}

TEST_F(EventsTest, AProgramThatOnlySchedulesStepsHasHyperparametersToo) {
  options_.hparams = {{"rate", 0.5}};
  job_->snapshot.finished_steps = 1000;
  job_->running = false;
  Start();
  Run(absl::Seconds(6));
  EXPECT_EQ(Count("train", kHParamsTag), 0)
      << "a point at a step of a state that is not chosen could hide what is there";
  job_->running = true;
  Run(absl::Seconds(6));
  EXPECT_EQ(Count("train", kHParamsTag), 1);
  EXPECT_EQ(EventsOf("train").back().step, 1000);
}

TEST_F(EventsTest, HyperparametersAreWrittenOnce) {
  options_.hparams = {{"rate", 0.5}};
  Start();
  Run(absl::Seconds(6));
  EXPECT_EQ(Count("train", kHParamsTag), 0);
  for (int i = 0; i < 2; ++i) {
    BeginLoop();
    Finish(1);
    Run(absl::Seconds(6));
    reporter_->OnLoopEnd();
  }
  reporter_->OnEnd();
  Run(absl::Seconds(1));
  EXPECT_EQ(Count("train", kHParamsTag), 1);
  EXPECT_EQ(Count("train", "configuration"), 1);
}

TEST_F(EventsTest, TheFirstRateOfAWorkerIsNotThatOfTheTimeSinceTheMachineStarted) {
  Start();
  Finish(10);
  Run(absl::Seconds(5));
  Run(absl::Seconds(1));
  EXPECT_THAT(Series("worker/0", "steps_per_second"), ElementsAre(Pair(10, 2)));
  EXPECT_THAT(Series("worker/0", "step_seconds"), ElementsAre(Pair(10, 1)));
}

TEST_F(EventsTest, StepsBeforeALoopCountInTheTimeInWhichTheyWereRun) {
  Start();
  Run(absl::Seconds(5));
  Finish(8);
  Run(absl::Seconds(4));
  BeginLoop();
  Finish(12);
  Run(absl::Seconds(6));
  EXPECT_THAT(Series("worker/0", "steps_per_second"), ElementsAre(Pair(8, 2), Pair(20, 2)));
}

TEST_F(EventsTest, TheEndOfALoopJustBehindATickHasNoPointOfItsOwn) {
  Start();
  BeginLoop();
  Finish(10);
  Run(absl::Seconds(5));
  Run(absl::Milliseconds(1));
  Finish(1);
  reporter_->OnLoopEnd();
  Run(absl::Milliseconds(1));
  EXPECT_THAT(Series("worker/0", "steps_per_second"), ElementsAre(Pair(10, 2)));
  Run(absl::Seconds(10));
  const auto series = Series("worker/0", "steps_per_second");
  ASSERT_THAT(series, SizeIs(2)) << "the step counts in the next interval";
  EXPECT_NEAR(series[1].second, 0.1, 0.001);
}

TEST_F(EventsTest, TheEndOfTheJobWritesTheStepsThatNoPointHasYet) {
  Start();
  BeginLoop();
  Run(absl::Seconds(1));
  Finish(4);
  reporter_->OnLoopEnd();
  Run(absl::Milliseconds(1));
  EXPECT_THAT(Series("worker/0", "steps_per_second"), IsEmpty());
  reporter_->OnEnd();
  Run(absl::Milliseconds(1));
  ASSERT_THAT(Series("worker/0", "steps_per_second"), SizeIs(1));
  EXPECT_NEAR(Series("worker/0", "steps_per_second")[0].second, 4, 0.02);
}

TEST_F(EventsTest, HistogramsBeginWithTheTraining) {
  VariableLayout w;
  w.id = VariableId(1);
  w.spec.name = "w";
  w.spec.shape = {2};
  w.offsets = {0, 2};
  w.ps = {0};
  job_->layout = job_->layout->With(w);
  options_.histograms_every = absl::Minutes(1);
  Start();
  EXPECT_TRUE(job_->sampled);
  reporter_->OnLoopBegin(*job_->layout, StepKind::kReadOnly);
  Run(absl::Seconds(5));
  EXPECT_EQ(job_->wanted, 0);
  BeginLoop();
  Run(absl::Seconds(1));
  EXPECT_EQ(job_->wanted, 1);
  EXPECT_EQ(Count("train", "weights/w"), 1);
}

}  // namespace
}  // namespace divvy
