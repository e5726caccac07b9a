#include "coordinator/core/step_samples.h"

#include <limits>

#include "gtest/gtest.h"

namespace divvy {
namespace {

Report Reported(absl::Duration took, uint64_t staleness) {
  Report report;
  report.took = took;
  report.staleness = staleness;
  report.participants = {0};
  return report;
}

TEST(StepSamplesTest, KeepNothingBeforeTheyBegin) {
  StepSamples samples;
  samples.WantGradients();
  EXPECT_FALSE(samples.TakeWant());
  samples.Note(0, 1, Reported(absl::Seconds(1), 3));
  EXPECT_TRUE(samples.TakeWorkers().empty());
  EXPECT_TRUE(samples.TakeStaleness().empty());
}

TEST(StepSamplesTest, EachWorkerHasItsStepsUntilTheyAreTaken) {
  StepSamples samples;
  samples.Begin();
  samples.Note(2, 1, Reported(absl::Seconds(1), 0));
  samples.Note(2, 1, Reported(absl::Seconds(3), 0));
  samples.Note(5, 1, Reported(absl::Seconds(1), 0));
  const auto workers = samples.TakeWorkers();
  EXPECT_EQ(workers.size(), 2u);
  EXPECT_EQ(workers.at(2).steps, 2);
  EXPECT_EQ(workers.at(2).took, absl::Seconds(4));
  EXPECT_EQ(workers.at(5).steps, 1);
  EXPECT_TRUE(samples.TakeWorkers().empty());
}

TEST(StepSamplesTest, CountTheStalenessOfStepsThatCommit) {
  StepSamples samples;
  samples.Begin();
  for (const uint64_t staleness : {0, 3, 3, 127}) samples.Note(0, 1, Reported({}, staleness));
  Report wrote_nothing = Reported({}, 0);
  wrote_nothing.participants.clear();
  samples.Note(0, 1, wrote_nothing);
  EXPECT_EQ(samples.TakeStaleness(), (std::map<uint64_t, int64_t>{{0, 1}, {3, 2}, {127, 1}}));
  EXPECT_TRUE(samples.TakeStaleness().empty());
}

TEST(StepSamplesTest, LargeStalenessIsRounded) {
  StepSamples samples;
  samples.Begin();
  for (const uint64_t staleness :
       {uint64_t{129}, uint64_t{1027}, uint64_t{1030}, std::numeric_limits<uint64_t>::max()})
    samples.Note(0, 1, Reported({}, staleness));
  EXPECT_EQ(samples.TakeStaleness(),
            (std::map<uint64_t, int64_t>{{128, 1}, {1024, 2}, {uint64_t{127} << 57, 1}}));
}

TEST(StepSamplesTest, OneStepIsAskedForEachWishAndTheLastAnswerCounts) {
  StepSamples samples;
  samples.Begin();
  EXPECT_FALSE(samples.TakeWant());
  samples.WantGradients();
  EXPECT_TRUE(samples.TakeWant());
  EXPECT_FALSE(samples.TakeWant());
  Report report = Reported({}, 0);
  for (const int step : {1, 2}) {
    report.gradients = {{"w", {static_cast<double>(step), 3, {1, 1}}}};
    samples.Note(0, step, report);
  }
  samples.Note(0, 3, Reported({}, 0));
  const GradientSample sample = samples.TakeGradients();
  EXPECT_EQ(sample.step, 2);
  ASSERT_EQ(sample.gradients.size(), 1u);
  EXPECT_EQ(sample.gradients[0].values.low, 2);
  EXPECT_TRUE(samples.TakeGradients().gradients.empty());
}

}  // namespace
}  // namespace divvy
