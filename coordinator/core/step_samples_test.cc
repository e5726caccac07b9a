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
  EXPECT_FALSE(samples.Ask(EntryId(1), 1));
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

// The report of attempt 1 of a step.
Report Told(uint64_t step, double low) {
  Report report = Reported({}, 0);
  report.step = EntryId(step);
  report.attempt = 1;
  report.gradients = {{"w", {low, low + 1, {1, 1}}}};
  return report;
}

TEST(StepSamplesTest, OneStepIsAskedAtATimeUntilOneHasToldItsGradients) {
  StepSamples samples;
  samples.Begin();
  EXPECT_FALSE(samples.Ask(EntryId(1), 1)) << "nobody wants them";
  samples.WantGradients();
  EXPECT_TRUE(samples.Ask(EntryId(1), 1));
  EXPECT_FALSE(samples.Ask(EntryId(2), 1));
  samples.OnEnd(EntryId(2), 1);
  EXPECT_FALSE(samples.Ask(EntryId(3), 1)) << "the attempt that was asked still runs";
  samples.OnEnd(EntryId(1), 1);
  EXPECT_TRUE(samples.Ask(EntryId(1), 2)) << "it was lost, failed, or has no gradients";
  samples.OnEnd(EntryId(1), 2);
  EXPECT_TRUE(samples.Ask(EntryId(4), 1));
  samples.Note(0, 9, Told(4, 5));
  samples.OnEnd(EntryId(4), 1);
  EXPECT_FALSE(samples.Ask(EntryId(5), 1));
  const GradientSample sample = samples.TakeGradients();
  EXPECT_EQ(sample.step, 9);
  ASSERT_EQ(sample.gradients.size(), 1u);
  EXPECT_EQ(sample.gradients[0].values.low, 5);
  EXPECT_TRUE(samples.TakeGradients().gradients.empty());
}

TEST(StepSamplesTest, GradientsThatNobodyAskedForAreIgnored) {
  StepSamples samples;
  samples.Begin();
  samples.Note(0, 1, Told(1, 0));
  samples.WantGradients();
  ASSERT_TRUE(samples.Ask(EntryId(2), 2));
  samples.Note(0, 2, Told(1, 0));
  samples.Note(0, 3, Told(2, 0));  // of another attempt
  EXPECT_TRUE(samples.TakeGradients().gradients.empty());
}

TEST(StepSamplesTest, FunctionsWithoutGradientsAreNotAskedForEver) {
  StepSamples samples;
  samples.Begin();
  samples.WantGradients();
  uint64_t step = 0;
  for (; step < 1000 && samples.Ask(EntryId(step), 1); ++step) samples.OnEnd(EntryId(step), 1);
  EXPECT_EQ(step, static_cast<uint64_t>(StepSamples::kMostAsked));
  samples.WantGradients();
  EXPECT_TRUE(samples.Ask(EntryId(step), 1));
}

TEST(StepSamplesTest, ARewindEndsTheAttemptThatWasAsked) {
  StepSamples samples;
  samples.Begin();
  samples.WantGradients();
  ASSERT_TRUE(samples.Ask(EntryId(1), 1));
  samples.OnRewind();
  EXPECT_TRUE(samples.Ask(EntryId(1), 2));
}

}  // namespace
}  // namespace divvy
