#include "coordinator/report/histogram_recorder.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

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
using ::testing::IsEmpty;

VariableLayout Variable(uint64_t id, std::string name, Shape shape, DType dtype = DType::kFloat32) {
  VariableLayout variable;
  variable.id = VariableId(id);
  variable.spec.name = std::move(name);
  variable.spec.shape = std::move(shape);
  variable.spec.dtype = dtype;
  variable.offsets = {0, variable.spec.shape.rank() == 0 ? 1 : variable.spec.shape.dim(0)};
  variable.ps = {0};
  return variable;
}

// ---- what is read

TEST(SampleOfTest, SmallVariablesAreReadWholeAndLargeOnesByRowsAtEqualDistances) {
  const auto layout = Layout::Empty()
                          ->With(Variable(1, "bias", {10}))
                          ->With(Variable(2, "count", {}, DType::kInt64))
                          ->With(Variable(3, "large", {1'000'000, 64}))
                          ->With(Variable(4, "scale", {}));
  const WeightSample sample = SampleOf(*layout);
  EXPECT_THAT(sample.names, ElementsAre("bias", "large", "scale"));
  EXPECT_EQ(sample.left_out, 0);
  EXPECT_FALSE(sample.reads[0].ids);
  EXPECT_FALSE(sample.reads[2].ids);
  ASSERT_TRUE(sample.reads[1].ids);
  const auto ids = sample.reads[1].ids->values<int64_t>().value();
  ASSERT_EQ(ids.size(), 1024u);  // 65,536 elements
  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[1], 976);
  EXPECT_EQ(ids[1023], 999'023);
}

TEST(SampleOfTest, AllVariablesTogetherHaveABound) {
  auto layout = Layout::Empty();
  for (uint64_t id = 1; id <= 1010; ++id)
    layout = layout->With(Variable(id, absl::StrCat("v", id), {1 << 20}));
  const WeightSample sample = SampleOf(*layout);
  EXPECT_EQ(sample.names.size(), 1000u);
  EXPECT_EQ(sample.left_out, 10);
  for (const VariableRead& read : sample.reads) EXPECT_EQ(read.ids->shape().num_elements(), 262);
}

// The elements that are read, and the numbered rows.
std::pair<int64_t, int64_t> SizeOf(const WeightSample& sample, const Layout& layout) {
  int64_t elements = 0, rows = 0;
  for (const VariableRead& read : sample.reads) {
    const Shape& shape = layout.Find(read.variable)->spec.shape;
    const int64_t ids = read.ids ? read.ids->shape().num_elements() : 0;
    elements +=
        read.ids ? ids * (shape.rank() < 2 ? 1 : shape.row_elements()) : shape.num_elements();
    rows += ids;
  }
  return {elements, rows};
}

TEST(SampleOfTest, ManyWideVariablesDoNotExceedTheBoundAndLeaveTheOthersIn) {
  auto layout = Layout::Empty();
  for (uint64_t id = 1; id <= 990; ++id)
    layout = layout->With(Variable(id, absl::StrCat("wide", id), {2, 1 << 20}));
  for (uint64_t id = 991; id <= 1000; ++id)
    layout = layout->With(Variable(id, absl::StrCat("bias", id), {1000}));
  const WeightSample sample = SampleOf(*layout);
  EXPECT_EQ(sample.names.size(), 13u) << "all biases, and 3 rows of 1 Mi elements";
  EXPECT_EQ(sample.left_out, 987);
  EXPECT_LE(SizeOf(sample, *layout).first, 4 << 20);
}

TEST(SampleOfTest, TheNumbersOfRowsHaveABoundToo) {
  const auto one = Layout::Empty()->With(Variable(1, "narrow", {1 << 20}));
  EXPECT_EQ(SampleOf(*one).reads[0].ids->shape().num_elements(), 4096);
  auto layout = Layout::Empty();
  for (uint64_t id = 1; id <= 1000; ++id)
    layout = layout->With(Variable(id, absl::StrCat("v", id), {1 << 20, 2}));
  const auto [elements, rows] = SizeOf(SampleOf(*layout), *layout);
  EXPECT_LE(rows, 1 << 18);
  EXPECT_EQ(elements, 2 * rows);
}

TEST(SampleOfTest, ARowThatIsTooLargeIsLeftOut) {
  const auto layout = Layout::Empty()
                          ->With(Variable(1, "fits", {4, 1 << 20}))
                          ->With(Variable(2, "wide", {4, (1 << 20) + 1}));
  const WeightSample sample = SampleOf(*layout);
  EXPECT_THAT(sample.names, ElementsAre("fits"));
  EXPECT_EQ(sample.reads[0].ids->shape().num_elements(), 1);
  EXPECT_EQ(sample.left_out, 1);
}

// ---- staleness

TEST(HistogramOfStalenessTest, AFewValuesHaveABucketEach) {
  const ValueHistogram histogram = HistogramOfStaleness({{1, 5}, {3, 2}});
  EXPECT_EQ(histogram.low, 1);
  EXPECT_EQ(histogram.high, 4);
  EXPECT_THAT(histogram.counts, ElementsAre(5, 0, 2));
  EXPECT_THAT(HistogramOfStaleness({}).counts, IsEmpty());
}

TEST(HistogramOfStalenessTest, ManyValuesShareBucketsWhoseEndsAreWholeNumbers) {
  const ValueHistogram histogram = HistogramOfStaleness({{0, 1}, {3, 1}, {4, 1}, {100, 1}});
  EXPECT_EQ(histogram.low, 0);
  EXPECT_EQ(histogram.high, 104);
  ASSERT_EQ(histogram.counts.size(), 26u);  // of 4
  EXPECT_EQ(histogram.counts[0], 2u);
  EXPECT_EQ(histogram.counts[1], 1u);
  EXPECT_EQ(histogram.counts[25], 1u);
}

// ---- when

struct FakeJob : public HistogramSource {
  bool IsRunning() const override { return running; }
  int64_t Step() const override { return step; }
  std::shared_ptr<const Layout> Variables() const override { return layout; }
  void Read(std::vector<VariableRead> reads,
            std::function<void(absl::StatusOr<std::vector<Tensor>>)> done) override {
    ++reads_made;
    if (holds_reads) {
      held.push_back(std::move(done));
    } else {
      done(std::vector<Tensor>(reads.size(), Tensor::Vector<float>({1, 2})));
    }
  }
  void WantGradients() override { ++wanted; }
  GradientSample TakeGradients() override { return std::exchange(gradients, {}); }
  std::map<uint64_t, int64_t> TakeStaleness() override { return std::exchange(staleness, {}); }

  bool running = true, holds_reads = false;
  int64_t step = 0;
  std::shared_ptr<const Layout> layout = Layout::Empty()->With(Variable(1, "w", {2}));
  int reads_made = 0, wanted = 0;
  std::vector<std::function<void(absl::StatusOr<std::vector<Tensor>>)>> held;
  GradientSample gradients;
  std::map<uint64_t, int64_t> staleness;
};

class HistogramRecorderTest : public ::testing::Test {
 protected:
  HistogramRecorderTest() { recorder_->Begin(); }

  // "step 3: weights/w" for each histogram, in the order of the file.
  std::vector<std::string> Written() {
    std::vector<std::string> written;
    const auto names = files_.ListDirectory("/logs/train");
    if (!names.ok()) return written;
    for (const std::string& name : *names) {
      const EventFile file =
          ReadEventFile(files_.ReadFile(absl::StrCat("/logs/train/", name)).value()).value();
      for (const Event& event : file.events) {
        if (event.values.empty()) continue;
        written.push_back(absl::StrCat(
            "step ", event.step, ": ",
            absl::StrJoin(event.values, ", ", [](std::string* out, const EventValue& value) {
              absl::StrAppend(out, value.tag);
            })));
      }
    }
    return written;
  }
  void Run(absl::Duration time) { executor_.RunFor(time); }

  InMemoryFileSystem files_;
  SimExecutor executor_{1};
  const std::shared_ptr<FakeJob> job_ = std::make_shared<FakeJob>();
  const std::shared_ptr<EventRecorder> events_ = std::make_shared<EventRecorder>(
      std::make_unique<SummaryWriter>("/logs", files_, executor_.clock()), executor_);
  const std::shared_ptr<HistogramRecorder> recorder_ = std::make_shared<HistogramRecorder>(
      absl::Minutes(1), job_, events_, executor_, executor_.clock());
};

TEST_F(HistogramRecorderTest, BeginsWithTheFirstTrainingAndGoesOnWhileStepsFinish) {
  Run(absl::Minutes(5));
  EXPECT_THAT(Written(), IsEmpty()) << "nothing has been trained";
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  EXPECT_THAT(Written(), ElementsAre("step 0: weights/w"));
  EXPECT_EQ(job_->wanted, 1);
  Run(absl::Minutes(5));
  EXPECT_EQ(job_->reads_made, 1) << "no step has finished";
  job_->step = 10;
  Run(absl::Seconds(1));
  job_->step = 20;
  Run(absl::Seconds(50));
  EXPECT_EQ(job_->reads_made, 2);
  Run(absl::Seconds(11));
  EXPECT_THAT(Written(),
              ElementsAre("step 0: weights/w", "step 10: weights/w", "step 20: weights/w"));
  EXPECT_EQ(job_->wanted, 3);
}

TEST_F(HistogramRecorderTest, ALaterLoopWaitsForItsTime) {
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  job_->step = 5;
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  EXPECT_EQ(job_->reads_made, 1);
}

TEST_F(HistogramRecorderTest, AProgramThatOnlySchedulesStepsHasHistogramsToo) {
  job_->step = 1;
  Run(absl::Seconds(2));
  EXPECT_THAT(Written(), ElementsAre("step 1: weights/w"));
}

TEST_F(HistogramRecorderTest, NothingIsReadBeforeTheProgramHasChosenItsState) {
  job_->running = false;
  job_->step = 7;
  recorder_->OnTraining();
  Run(absl::Minutes(3));
  EXPECT_EQ(job_->reads_made, 0);
  job_->running = true;
  Run(absl::Seconds(2));
  EXPECT_THAT(Written(), ElementsAre("step 7: weights/w"));
}

TEST_F(HistogramRecorderTest, GradientsAreWrittenWithinASecondAtTheirOwnStep) {
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  job_->layout = job_->layout->With(Variable(2, "b", {1}));
  job_->gradients = {3, {{"w", {0, 1, {1, 1}}}, {"b", {2, 2, {1}}}}};
  Run(absl::Seconds(1));
  EXPECT_THAT(Written(), ElementsAre("step 0: weights/w", "step 3: gradients/b, gradients/w"));
}

TEST_F(HistogramRecorderTest, AWorkerAddsNoSeriesOfVariablesThatTheJobDoesNotHave) {
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  job_->gradients = {3, {{"w", {0, 1, {1, 1}}}, {"another", {0, 1, {1, 1}}}}};
  Run(absl::Seconds(1));
  EXPECT_THAT(Written(), ElementsAre("step 0: weights/w", "step 3: gradients/w"));
}

TEST_F(HistogramRecorderTest, StalenessIsThatOfAllStepsSinceTheLastTime) {
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  job_->step = 9;
  job_->staleness = {{0, 4}, {1, 5}};
  Run(absl::Seconds(30));
  EXPECT_THAT(Written(), ElementsAre("step 0: weights/w"));
  Run(absl::Seconds(31));
  EXPECT_THAT(Written(),
              ElementsAre("step 0: weights/w", "step 9: staleness", "step 9: weights/w"));
}

TEST_F(HistogramRecorderTest, OneReadIsUnderWayAtATime) {
  job_->holds_reads = true;
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  job_->step = 5;
  Run(absl::Minutes(3));
  EXPECT_EQ(job_->reads_made, 1);
  job_->held[0](absl::UnavailableError("ps 0 is away"));
  Run(absl::Seconds(2));
  EXPECT_EQ(job_->reads_made, 2);
  job_->held[1](std::vector<Tensor>{Tensor::Vector<float>({1})});
  Run(absl::Seconds(1));
  EXPECT_THAT(Written(), ElementsAre("step 5: weights/w"));
}

TEST_F(HistogramRecorderTest, TheTrainedWeightsAreReadAtTheEnd) {
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  job_->step = 7;
  job_->holds_reads = true;
  bool done = false;
  recorder_->SampleLast([&done] { done = true; });
  Run(absl::Seconds(1));
  EXPECT_FALSE(done);
  ASSERT_EQ(job_->held.size(), 1u);
  job_->held[0](std::vector<Tensor>{Tensor::Vector<float>({1})});
  EXPECT_TRUE(done);
  recorder_->Finish();
  Run(absl::Seconds(1));
  EXPECT_THAT(Written(), ElementsAre("step 0: weights/w", "step 7: weights/w"));
}

TEST_F(HistogramRecorderTest, AReadFromBeforeTheEndIsNotTheLast) {
  job_->holds_reads = true;
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  job_->step = 7;
  bool done = false;
  recorder_->SampleLast([&done] { done = true; });
  job_->held[0](std::vector<Tensor>{Tensor::Vector<float>({1})});
  Run(absl::Seconds(1));
  EXPECT_FALSE(done);
  ASSERT_EQ(job_->held.size(), 2u);
  job_->held[1](absl::UnavailableError("ps 0 is away"));
  EXPECT_TRUE(done);
  Run(absl::Seconds(1));
  EXPECT_EQ(job_->reads_made, 2);
}

TEST_F(HistogramRecorderTest, NothingIsReadAtTheEndThatWasReadBefore) {
  job_->step = 3;
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  bool done = false;
  recorder_->SampleLast([&done] { done = true; });
  EXPECT_TRUE(done);
  EXPECT_EQ(job_->reads_made, 1);
}

TEST_F(HistogramRecorderTest, AnEndThatDoesNotWaitForTheLastReadIsNotCalledLater) {
  job_->step = 3;
  job_->holds_reads = true;
  bool done = false;
  recorder_->SampleLast([&done] { done = true; });
  Run(absl::Seconds(1));
  recorder_->Finish();
  job_->held[0](std::vector<Tensor>{Tensor::Vector<float>({1})});
  EXPECT_FALSE(done);
  EXPECT_THAT(Written(), IsEmpty());
}

TEST_F(HistogramRecorderTest, TheEndWritesWhatIsKnownAndNothingAfterIt) {
  job_->holds_reads = true;
  recorder_->OnTraining();
  Run(absl::Seconds(1));
  job_->step = 2;
  job_->gradients = {1, {{"w", {0, 1, {1, 1}}}}};
  job_->staleness = {{0, 2}};
  recorder_->Finish();
  Run(absl::Seconds(1));
  EXPECT_THAT(Written(), ElementsAre("step 1: gradients/w", "step 2: staleness"));
  job_->held[0](std::vector<Tensor>{Tensor::Vector<float>({1})});
  job_->step = 9;
  Run(absl::Minutes(3));
  EXPECT_EQ(Written().size(), 2u);
  EXPECT_EQ(job_->reads_made, 1);
}

}  // namespace
}  // namespace divvy
