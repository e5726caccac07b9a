#include "coordinator/core/step_rules.h"

#include "gtest/gtest.h"

namespace divvy {
namespace {

using Applied = std::map<int, int>;

StepJudgement Plain(StepVerdict verdict) { return {verdict}; }
StepJudgement WithRewind(StepVerdict verdict) { return {verdict, true}; }

StepFacts Facts(Applied applied, uint32_t attempt = 1, bool cancelling = false) {
  return {attempt, /*max_attempts=*/3, cancelling, std::move(applied)};
}

TEST(StepRulesTest, ACleanReportEndsTheStep) {
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kOk, {0, 1}), Plain(StepVerdict::kFinish));
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kOk, {}), Plain(StepVerdict::kFinish));
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kFailed, {}), Plain(StepVerdict::kFail));
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kEndOfData, {}), Plain(StepVerdict::kEndOfData));
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kCancelled, {}), Plain(StepVerdict::kRequeue))
      << "the attempt ran past its deadline";
  EXPECT_EQ(JudgeReport(Facts({}, 3), StepOutcome::kCancelled, {}), Plain(StepVerdict::kGiveUp));
  EXPECT_EQ(JudgeReport(Facts({}, 3, /*cancelling=*/true), StepOutcome::kCancelled, {}),
            Plain(StepVerdict::kCancel));
}

TEST(StepRulesTest, AHalfAppliedStepFinishesIfItsRerunTouchesTheSamePs) {
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2), StepOutcome::kOk, {0, 1}), Plain(StepVerdict::kFinish));
  EXPECT_EQ(JudgeReport(Facts({{0, 2}, {1, 2}}, 2), StepOutcome::kOk, {0, 1}),
            Plain(StepVerdict::kFinish));
}

TEST(StepRulesTest, AHalfAppliedStepWhoseRerunTouchesOtherPsIsTakenBackAndRunAgain) {
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2), StepOutcome::kOk, {1, 2}),
            WithRewind(StepVerdict::kRequeue));
  // Fewer participants than the lost attempt named.
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2), StepOutcome::kOk, {0}),
            WithRewind(StepVerdict::kRequeue));
  // More participants.
  EXPECT_EQ(JudgeReport(Facts({{0, 1}}, 2), StepOutcome::kOk, {0, 1}),
            WithRewind(StepVerdict::kRequeue));
}

TEST(StepRulesTest, AHalfAppliedStepThatCannotBeCompletedIsTakenBack) {
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2), StepOutcome::kFailed, {}),
            WithRewind(StepVerdict::kFail));
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2), StepOutcome::kEndOfData, {}),
            WithRewind(StepVerdict::kEndOfData));
  // One ps refused the commit after another ps had applied its part.
  EXPECT_EQ(JudgeReport(Facts({}), StepOutcome::kFailed, {1}), WithRewind(StepVerdict::kFail));
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 3), StepOutcome::kSystem, {}),
            WithRewind(StepVerdict::kGiveUp));
}

TEST(StepRulesTest, AHalfAppliedStepIsNotCancelledButCarriedThrough) {
  EXPECT_EQ(JudgeReport(Facts({{0, 2}}, 2, true), StepOutcome::kCancelled, {}),
            Plain(StepVerdict::kRequeue));
  EXPECT_EQ(JudgeLoss(Facts({{0, 2}}, 1, true)), Plain(StepVerdict::kRequeue));
}

TEST(StepRulesTest, ASystemFailureRunsAgainUntilTheAttemptsAreUsedUp) {
  EXPECT_EQ(JudgeReport(Facts({}, 2), StepOutcome::kSystem, {}), Plain(StepVerdict::kRequeue));
  EXPECT_EQ(JudgeReport(Facts({}, 3), StepOutcome::kSystem, {}), Plain(StepVerdict::kGiveUp));
  EXPECT_EQ(JudgeReport(Facts({}, 1, true), StepOutcome::kSystem, {}), Plain(StepVerdict::kCancel));
}

TEST(StepRulesTest, AStepThatHasBrokenTheDevicesOfThreeWorkersIsGivenUp) {
  StepFacts facts = Facts({}, 1);
  facts.max_attempts = 10;
  facts.devices_lost = 2;
  EXPECT_EQ(JudgeReport(facts, StepOutcome::kSystem, {}), Plain(StepVerdict::kRequeue));
  facts.devices_lost = 3;
  EXPECT_EQ(JudgeReport(facts, StepOutcome::kSystem, {}), Plain(StepVerdict::kGiveUp));
}

TEST(StepRulesTest, ALostWorkerCostsAnAttempt) {
  EXPECT_EQ(JudgeLoss(Facts({}, 2)), Plain(StepVerdict::kRequeue));
  EXPECT_EQ(JudgeLoss(Facts({}, 3)), Plain(StepVerdict::kGiveUp));
  EXPECT_EQ(JudgeLoss(Facts({{1, 2}}, 3)), WithRewind(StepVerdict::kGiveUp));
  EXPECT_EQ(JudgeLoss(Facts({}, 1, true)), Plain(StepVerdict::kCancel));
}

StepFacts Replayed(Applied applied, uint32_t attempt = 1) {
  return {attempt, /*max_attempts=*/3, /*cancelling=*/true, std::move(applied), /*replayed=*/true};
}

TEST(StepRulesTest, AReplayedStepIsNeitherCancelledNorFailedBeforeItsAttemptsAreUsedUp) {
  EXPECT_EQ(JudgeReport(Replayed({}), StepOutcome::kOk, {0, 1}), Plain(StepVerdict::kFinish));
  EXPECT_EQ(JudgeReport(Replayed({}), StepOutcome::kFailed, {}), Plain(StepVerdict::kRequeue));
  EXPECT_EQ(JudgeReport(Replayed({}), StepOutcome::kEndOfData, {}), Plain(StepVerdict::kRequeue));
  EXPECT_EQ(JudgeReport(Replayed({}), StepOutcome::kCancelled, {}), Plain(StepVerdict::kRequeue));
  EXPECT_EQ(JudgeReport(Replayed({}, 3), StepOutcome::kFailed, {}), Plain(StepVerdict::kGiveUp));
  EXPECT_EQ(JudgeLoss(Replayed({})), Plain(StepVerdict::kRequeue));
}

TEST(StepRulesTest, AReplayedStepThatIsHalfAppliedAndGoesAnotherWayIsTakenBack) {
  EXPECT_EQ(JudgeReport(Replayed({{0, 2}}), StepOutcome::kOk, {1, 2}),
            WithRewind(StepVerdict::kRequeue));
  EXPECT_EQ(JudgeReport(Replayed({{0, 2}}), StepOutcome::kFailed, {}),
            WithRewind(StepVerdict::kRequeue));
  EXPECT_EQ(JudgeReport(Replayed({{0, 2}}), StepOutcome::kSystem, {}),
            Plain(StepVerdict::kRequeue));
}

}  // namespace
}  // namespace divvy
