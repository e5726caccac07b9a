// What becomes of a step when an attempt ends: the table of protocol section 7, as pure functions.
#ifndef DIVVY_COORDINATOR_CORE_STEP_RULES_H_
#define DIVVY_COORDINATOR_CORE_STEP_RULES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "cluster/messages.h"

namespace divvy {

enum class StepVerdict : uint8_t {
  // applied at every participant, once: its value is ready
  kFinish,
  // The step's own error: no trace of it anywhere.
  kFail,
  // closed without an element: neither finished nor an error
  kEndOfData,
  // closed without a trace: its batch is being cancelled
  kCancel,
  // To the head of the queue: run again under the same id.
  kRequeue,
  // Its attempts are used up.
  kGiveUp,
};

struct StepJudgement {
  StepVerdict verdict = StepVerdict::kFail;
  // Some ps applied writes of the step that no run will complete as they are: the state must go
  // back to one without them.
  bool rewind = false;
  friend bool operator==(const StepJudgement& a, const StepJudgement& b) {
    return a.verdict == b.verdict && a.rewind == b.rewind;
  }
};

// What the coordinator knows of a step besides the report.
struct StepFacts {
  uint32_t attempt = 1, max_attempts = 10;
  // Its batch is being cancelled, or has an error and will be.
  bool cancelling = false;
  // By a lost run: ps -> number of participants that run told. Not empty: the step is dirty.
  std::map<int, int> applied;
  // It had finished before a rewind: it cannot fail or be cancelled any more, but its attempts may
  // be used up.
  bool replayed = false;
  // worker processes that lost a GPU while they ran it
  size_t devices_lost = 0;
};

// A step during which so many worker processes lost a GPU is given up: it is the step that breaks
// them, and it would break all of them.
constexpr size_t kMostDevicesLost = 3;

// Both are pure.

// An attempt reported. `participants`: the ps it committed to.
StepJudgement JudgeReport(const StepFacts& facts, StepOutcome outcome,
                          const std::vector<int>& participants);

// An attempt was lost with its worker, which is fenced on every ps; `facts.applied` has what they
// answered.
StepJudgement JudgeLoss(const StepFacts& facts);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STEP_RULES_H_
