// The table of protocol section 7 as pure functions: what happens to a step when an attempt ends.
#ifndef DIVVY_COORDINATOR_CORE_STEP_RULES_H_
#define DIVVY_COORDINATOR_CORE_STEP_RULES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "protocol/messages.h"

namespace divvy {

// What happens to the step.
enum class StepVerdict : uint8_t {
  // Applied at every participant, once. Its value is ready.
  kFinish,
  // The step's own error. It leaves no trace on any server.
  kFail,
  // Closed because there was no element: neither finished nor an error.
  kEndOfData,
  // Closed without a trace, because its batch is being cancelled.
  kCancel,
  // Goes to the head of the queue and runs again under the same id.
  kRequeue,
  // Fails, because its attempts are used up.
  kGiveUp,
};

// The verdict, and whether it needs a rewind.
struct StepJudgement {
  StepVerdict verdict = StepVerdict::kFail;
  // Some ps have applied writes of the step that no run will complete as they are. The state must
  // return to one without these writes.
  bool rewind = false;
  friend bool operator==(const StepJudgement& a, const StepJudgement& b) {
    return a.verdict == b.verdict && a.rewind == b.rewind;
  }
};

// What the coordinator knows about a step besides the report.
struct StepFacts {
  uint32_t attempt = 1, max_attempts = 10;
  // Its batch is being cancelled, or will be cancelled because of an error.
  bool cancelling = false;
  // Commits of a lost attempt: ps -> the number of participants that the attempt named. Not empty:
  // the step is dirty.
  std::map<int, int> applied;
  // The step had finished before a rewind. It cannot fail or be cancelled any more, but its
  // attempts may be used up.
  bool replayed = false;
  // The number of worker processes that lost a GPU while they ran the step.
  size_t devices_lost = 0;
};

// A step during which so many worker processes lost a GPU is given up. The step itself is then the
// cause, and it would break the GPUs of all workers.
constexpr size_t kMostDevicesLost = 3;

// Judges an attempt that was reported. `participants`: the ps that it committed to. Pure.
StepJudgement JudgeReport(const StepFacts& facts, StepOutcome outcome,
                          const std::vector<int>& participants);

// Judges an attempt whose worker was lost and is fenced on every ps. `facts.applied` has the
// answers of the ps. Pure.
StepJudgement JudgeLoss(const StepFacts& facts);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STEP_RULES_H_
