#include "coordinator/core/step_rules.h"

#include <algorithm>

namespace divvy {
namespace {

// Whether all of the step comes from one run: every ps that applied the lost run's commit is among the participants of this one, which is as wide.
bool SameParticipants(const std::map<int, int>& applied, const std::vector<int>& participants) {
  return std::all_of(applied.begin(), applied.end(), [&](const auto& entry) {
    return entry.second == static_cast<int>(participants.size()) && std::count(participants.begin(), participants.end(), entry.first) > 0;
  });
}

StepVerdict RequeueOrGiveUp(const StepFacts& facts) {
  if (facts.attempt < facts.max_attempts) return StepVerdict::kRequeue;
  return facts.applied.empty() ? StepVerdict::kGiveUp : StepVerdict::kJobLost;
}

}  // namespace

StepVerdict JudgeReport(const StepFacts& facts, StepOutcome outcome, const std::vector<int>& participants) {
  const bool dirty = !facts.applied.empty();
  switch (outcome) {
    case StepOutcome::kOk: return SameParticipants(facts.applied, participants) ? StepVerdict::kFinish : StepVerdict::kJobLost;
    case StepOutcome::kFailed: return dirty || !participants.empty() ? StepVerdict::kJobLost : StepVerdict::kFail;
    case StepOutcome::kEndOfData: return dirty ? StepVerdict::kJobLost : StepVerdict::kEndOfData;
    case StepOutcome::kCancelled:
      if (dirty) return StepVerdict::kRequeue;
      [[fallthrough]];  // without a batch that is cancelled, the attempt ran past its deadline
    case StepOutcome::kSystem: return facts.cancelling && !dirty ? StepVerdict::kCancel : RequeueOrGiveUp(facts);
  }
  return StepVerdict::kFail;
}

StepVerdict JudgeLoss(const StepFacts& facts) {
  if (facts.cancelling && facts.applied.empty()) return StepVerdict::kCancel;
  return RequeueOrGiveUp(facts);
}

}  // namespace divvy
