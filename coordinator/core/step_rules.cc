#include "coordinator/core/step_rules.h"

#include <algorithm>

namespace divvy {
namespace {

// Whether all writes of the step come from one run. That is so if every ps that applied the lost
// run's commit is among the participants of this run, and this run has as many participants.
bool SameParticipants(const std::map<int, int>& applied, const std::vector<int>& participants) {
  return std::all_of(applied.begin(), applied.end(), [&](const auto& entry) {
    return entry.second == static_cast<int>(participants.size()) &&
           std::count(participants.begin(), participants.end(), entry.first) > 0;
  });
}

StepJudgement RequeueOrGiveUp(const StepFacts& facts) {
  const bool breaks_devices = facts.devices_lost >= kMostDevicesLost;
  if (facts.attempt < facts.max_attempts && !breaks_devices) return {StepVerdict::kRequeue};
  return {StepVerdict::kGiveUp, !facts.applied.empty()};
}

StepJudgement JudgeReplay(const StepFacts& facts, StepOutcome outcome,
                          const std::vector<int>& participants) {
  if (outcome == StepOutcome::kOk && SameParticipants(facts.applied, participants))
    return {StepVerdict::kFinish};
  StepJudgement judgement = RequeueOrGiveUp(facts);
  const bool may_run_again = outcome == StepOutcome::kSystem || outcome == StepOutcome::kCancelled;
  judgement.rewind = !may_run_again && (!facts.applied.empty() || !participants.empty());
  return judgement;
}

}  // namespace

StepJudgement JudgeReport(const StepFacts& facts, StepOutcome outcome,
                          const std::vector<int>& participants) {
  if (facts.replayed) return JudgeReplay(facts, outcome, participants);
  const bool dirty = !facts.applied.empty();
  switch (outcome) {
    case StepOutcome::kOk:
      if (SameParticipants(facts.applied, participants)) return {StepVerdict::kFinish};
      return {StepVerdict::kRequeue, true};
    case StepOutcome::kFailed: return {StepVerdict::kFail, dirty || !participants.empty()};
    case StepOutcome::kEndOfData: return {StepVerdict::kEndOfData, dirty};
    case StepOutcome::kCancelled:
      if (dirty) return {StepVerdict::kRequeue};
      // If no batch is being cancelled, the attempt ran past its deadline.
      [[fallthrough]];
    case StepOutcome::kSystem:
      return facts.cancelling && !dirty ? StepJudgement{StepVerdict::kCancel}
                                        : RequeueOrGiveUp(facts);
  }
  return {StepVerdict::kFail};
}

StepJudgement JudgeLoss(const StepFacts& facts) {
  if (!facts.replayed && facts.cancelling && facts.applied.empty()) return {StepVerdict::kCancel};
  return RequeueOrGiveUp(facts);
}

}  // namespace divvy
