// Rules of the protocol that a test may switch off, to show that the simulation notices when they
// are missing.
//
// In what ships, RuleHolds is a constant and costs nothing. In the testonly build of the cores
// (-DDIVVY_BREAKABLE, made by divvy_core_library as `x_breakable`) it reads a switch. The switches
// are globals of the process: one simulation at a time.
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
  // A ps applies a commit that it has applied before no second time.
  kDedupe,
  // A ps refuses what comes from a session that is fenced or unknown.
  kSessionCheck,
  // A step is dispatched again only when every ps has fenced its former session.
  kWaitForFence,
  // The horizon's list of open steps names the steps in flight.
  kOpenContainsInFlight,
  // The sessions of a coordinator and of its successor have different numbers.
  kSessionsOfEpochsDiffer,
  // While a checkpoint is cut, no step begins to commit.
  kHoldBeforeSnapshot,
  // A half applied step whose re-run touches other servers is taken back, so that all of it comes
  // from one run.
  kRewindWhenReRunDiffers,
  // What a program reads after a rewind has all that it saw finished.
  kReadsWaitForReplay,
  // A worker says that it is held only when none of its steps is committing.
  kHeldWhenNothingCommits,
  // What the servers hold is adopted only if no entry is half applied.
  kAdoptOnlyWhole,
  // What was adopted is saved at once, and until it is a lost server ends the job.
  kCheckpointAfterAdopting,
  // A job is called complete only when every server has answered after its last step.
  kSyncBeforeComplete,
  // A worker that keeps rows forgets those that its step writes, before they are sent.
  kForgetWhatItWrites,
  // While the program's own write is applied, no open step commits: it comes before them all, or
  // after.
  kWritesHoldCommits,
  // No step is dispatched while a write is applied that began when no step was open.
  kStepsWaitForWrites,
  // An entry is run again only after all that had finished before it began.
  kReplayKeepsOrder,
  // servers change their number only with a checkpoint that holds all there is
  kResizeFromAWholeCut,
  // The end of one dataset says nothing of the others that the step reads.
  kEndIsOfOneDataset,
  // A server that is lost while it loads counts as a recovery.
  kLossWhileLoadingCounts,
  // A worker that joins a pass over data that was cut for fewer workers reads none of it.
  kLateWorkerHasNoPart,
  // data of which steps have read is not cut anew for a worker that comes
  kReadDataKeepsItsCut,
  // servers are told how far passes have got with the steps that they may forget
  kHorizonHasPasses,
  // What one worker says of epoch, job or length of the data is its own error.
  kOneWorkerEndsNoJob,
  // An epoch that no coordinator of the job can have begun is nobody's word.
  kEpochsArePlausible,
  // A worker that has never served takes no share of the data.
  kPhantomsHaveNoShare,
  // What few workers say of the size of the data does not count.
  kSizeIsOfMost,
  // What a worker reports of a step has none of the reasons that end a job.
  kStepErrorsAreOfSteps,
  // A GPU that fails is not the error of the step that was running on it.
  kLostDeviceFailsNoStep,
  // A worker whose GPU has failed runs no step any more.
  kLostDeviceEndsItsWorker,
  // A step that takes the GPUs of three workers with it is given up.
  kDeviceLossesAreCounted,
  // A step runs beside a commit only if neither of the two assigns what the other needs.
  kAssignsAreNotMissed,
  // A step that commits while another runs is one of those that --pipeline_depth lets overlap.
  kDepthCountsCommits,
};
// The last of them.
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
