// Rules of the protocol that a test can switch off, to show that the simulation then finds a
// violation.
//
// In released binaries RuleHolds is a constant and costs nothing. In the testonly build of the
// cores (-DDIVVY_BREAKABLE, which divvy_core_library makes as `x_breakable`) it reads a switch. The
// switches are globals of the process, so run one simulation at a time.
//
//   if (RuleHolds(Rule::kDedupe) && applied_.Contains(step)) return AlreadyApplied();
#ifndef DIVVY_BASE_BREAKABLE_H_
#define DIVVY_BASE_BREAKABLE_H_

#ifdef DIVVY_BREAKABLE
#include <atomic>
#include <cstddef>
#endif

namespace divvy {

enum class Rule {
  // A ps never applies the same commit twice.
  kDedupe,
  // A pull of keys of a dynamic table makes no row, and does not count as a step that named them.
  kPullsMakeNoRows,
  // A parameter server never applies the same eviction twice.
  kEvictionsCountOnce,
  // The steps that named a key of a table count once, however many of their attempts arrive.
  kAttemptsDoNotCount,
  // A commit does not write to memory that a reply to a pull has borrowed.
  kLentBlocksDoNotChange,
  // A ps refuses requests of a session that is fenced or unknown.
  kSessionCheck,
  // A step is re-dispatched only when every ps has fenced the session of its former attempt.
  kWaitForFence,
  // The horizon's list of open steps includes the steps in flight.
  kOpenContainsInFlight,
  // The sessions of a coordinator and of its successor have different numbers.
  kSessionsOfEpochsDiffer,
  // While a checkpoint is cut, no step begins to commit.
  kHoldBeforeSnapshot,
  // If a partly applied step is run again and the new attempt touches other servers, the job
  // rewinds. So all writes of a step come from one attempt.
  kRewindWhenReRunDiffers,
  // A read of the program that follows a rewind waits for the replay. So the program sees every
  // step that it has already seen finish.
  kReadsWaitForReplay,
  // A worker answers a hold only when none of its steps is committing.
  kHeldWhenNothingCommits,
  // The state of the servers is adopted only if no entry is partly applied.
  kAdoptOnlyWhole,
  // After an adoption a checkpoint is made at once. Until it is complete, the loss of a server ends
  // the job.
  kCheckpointAfterAdopting,
  // A job counts as complete only when every server has answered a Sync that follows the last step.
  kSyncBeforeComplete,
  // While a write of the program is applied, no open step commits. So the write comes before all of
  // their commits or after all of them.
  kWritesHoldCommits,
  // While a write that began without open steps is applied, no step is dispatched.
  kStepsWaitForWrites,
  // A replay runs an entry only after all entries that had finished before this entry began.
  kReplayKeepsOrder,
  // The number of servers changes only from a checkpoint that holds everything that was applied.
  kResizeFromAWholeCut,
  // The end of one dataset does not end the other datasets that the step reads.
  kEndIsOfOneDataset,
  // The loss of a server while it loads counts as a recovery.
  kLossWhileLoadingCounts,
  // If data is divided among fewer workers, a worker that joins the pass later reads none of it.
  kLateWorkerHasNoPart,
  // Data that steps have read is not divided again when another worker joins.
  kReadDataKeepsItsCut,
  // The horizon tells servers the progress of passes, together with the steps that they may forget.
  kHorizonHasPasses,
  // If one worker alone disagrees about the generation, the job or the length of the data, the job
  // does not end.
  kOneWorkerEndsNoJob,
  // A reported generation counts only if a coordinator of this job can have begun it.
  kEpochsArePlausible,
  // A worker that has never served takes no share of the data.
  kPhantomsHaveNoShare,
  // The size of the data is the size that most workers report.
  kSizeIsOfMost,
  // A worker's report of a step cannot carry a reason that ends the whole job.
  kStepErrorsAreOfSteps,
  // The failure of a GPU does not become the error of the step that was running on it.
  kLostDeviceFailsNoStep,
  // A worker whose GPU has failed runs no more steps.
  kLostDeviceEndsItsWorker,
  // A step that was running on three workers when their GPUs failed is not run again.
  kDeviceLossesAreCounted,
  // A step runs beside a commit only if neither of the two assigns a variable that the other needs.
  kAssignsAreNotMissed,
  // A step that commits while another step runs counts towards --pipeline_depth.
  kDepthCountsCommits,
};
// The number of rules. Keep the last enumerator here.
inline constexpr int kNumRules = static_cast<int>(Rule::kDepthCountsCommits) + 1;

#ifdef DIVVY_BREAKABLE

namespace internal {
inline std::atomic<bool> rule_broken[kNumRules] = {};
}  // namespace internal

// Thread-safe.
inline bool RuleHolds(Rule rule) {
  return !internal::rule_broken[static_cast<size_t>(rule)].load(std::memory_order_relaxed);
}
inline void SetRuleBroken(Rule rule, bool broken) {
  internal::rule_broken[static_cast<size_t>(rule)].store(broken, std::memory_order_relaxed);
}

#else

constexpr bool RuleHolds(Rule) { return true; }

#endif

}  // namespace divvy

#endif  // DIVVY_BASE_BREAKABLE_H_
