#include "coordinator/core/step_rules.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

using Applied = std::map<int, int>;

StepFacts Facts(Applied applied, uint32_t attempt = 1, bool cancelling = false) { return {attempt, /*max_attempts=*/3, cancelling, std::move(applied)}; }

TEST(StepRulesTest, ACleanReportEndsTheStep) {
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kOk, {0, 1}), StepVerdict::kFinish);
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kOk, {}), StepVerdict::kFinish);
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kFailed, {}), StepVerdict::kFail);
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kEndOfData, {}), StepVerdict::kEndOfData);
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kCancelled, {}), StepVerdict::kRequeue) << "it ran past its deadline";
  EXPECT_EQ(JudgeReport(Facts({}, 3), StepOutcome::kCancelled, {}), StepVerdict::kGiveUp);
  EXPECT_EQ(JudgeReport(Facts({}, 3, /*cancelling=*/true), StepOutcome::kCancelled, {}), StepVerdict::kCancel);
}

TEST(StepRulesTest, AHalfAppliedStepFinishesIfItsRerunTouchesTheSamePs) {
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2), StepOutcome::kOk, {0, 1}), StepVerdict::kFinish);
  EXPECT_EQ(JudgeReport(Facts({{0, 2}, {1, 2}}, 2), StepOutcome::kOk, {0, 1}), StepVerdict::kFinish);
}

TEST(StepRulesTest, AHalfAppliedStepWhoseRerunTouchesOtherPsLosesTheJob) {
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2), StepOutcome::kOk, {1, 2}), StepVerdict::kJobLost);
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2), StepOutcome::kOk, {0}), StepVerdict::kJobLost);     // fewer than the lost run told
  EXPECT_EQ(JudgeReport(Facts({{0, 1}}, 2), StepOutcome::kOk, {0, 1}), StepVerdict::kJobLost);  // more
}

TEST(StepRulesTest, AHalfAppliedStepThatCannotBeCompletedLosesTheJob) {
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2), StepOutcome::kFailed, {}), StepVerdict::kJobLost);
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2), StepOutcome::kEndOfData, {}), StepVerdict::kJobLost);
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kFailed, {1}), StepVerdict::kJobLost);  // refused by one ps after another applied it
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 3), StepOutcome::kSystem, {}), StepVerdict::kJobLost);
}

TEST(StepRulesTest, AHalfAppliedStepIsNotCancelledButCarriedThrough) {
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2, true), StepOutcome::kCancelled, {}), StepVerdict::kRequeue);
  EXPECT_EQ(JudgeLoss(Facts({{0, 2}}, 1, true)), StepVerdict::kRequeue);
}

TEST(StepRulesTest, ASystemFailureRunsAgainUntilTheAttemptsAreUsedUp) {
  EXPECT_EQ(JudgeReport(Facts({}, 2), StepOutcome::kSystem, {}), StepVerdict::kRequeue);
  EXPECT_EQ(JudgeReport(Facts({}, 3), StepOutcome::kSystem, {}), StepVerdict::kGiveUp);
  EXPECT_EQ(JudgeReport(Facts({}, 1, true), StepOutcome::kSystem, {}), StepVerdict::kCancel);
}

TEST(StepRulesTest, ALostWorkerCostsAnAttempt) {
  EXPECT_EQ(JudgeLoss(Facts({}, 2)), StepVerdict::kRequeue);
  EXPECT_EQ(JudgeLoss(Facts({}, 3)), StepVerdict::kGiveUp);
  EXPECT_EQ(JudgeLoss(Facts({{1, 2}}, 3)), StepVerdict::kJobLost);
  EXPECT_EQ(JudgeLoss(Facts({}, 1, true)), StepVerdict::kCancel);
}

}  // namespace
}  // namespace divvy
