// Rules of the protocol that a test may switch off, to show that the simulation notices when they are missing.
//
// In what ships, RuleHolds is a constant and costs nothing. In the testonly build of the cores (-DDIVVY_BREAKABLE, made by
// divvy_core_library as `x_breakable`) it reads a switch. The switches are globals of the process: one simulation at a time.
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
  kDedupe,                   // a ps applies a commit that it has applied before no second time
  kSessionCheck,             // a ps refuses what comes from a session that is fenced or unknown
  kWaitForFence,             // a step is dispatched again only when every ps has fenced its former session
  kOpenContainsInFlight,     // the horizon's list of open steps names the steps in flight
  kSessionsOfEpochsDiffer,   // the sessions of a coordinator and of its successor have different numbers
  kHoldBeforeSnapshot,       // while a checkpoint is cut, no step begins to commit
  kRewindWhenReRunDiffers,   // a half applied step whose re-run touches other servers is taken back, so that all of it comes from one run
  kReadsWaitForReplay,       // what a program reads after a rewind has all that it saw finished
  kHeldWhenNothingCommits,   // a worker says that it is held only when none of its steps is committing
  kAdoptOnlyWhole,           // what the servers hold is adopted only if no entry is half applied
  kCheckpointAfterAdopting,  // what was adopted is saved at once, and until it is a lost server ends the job
  kSyncBeforeComplete,       // a job is called complete only when every server has answered after its last step
  kForgetWhatItWrites,       // a worker that keeps rows forgets those that its step writes, before they are sent
  kWritesHoldCommits,        // while the program's own write is applied, no open step commits: it comes before them all, or after
  kStepsWaitForWrites,       // no step is dispatched while a write is applied that began when no step was open
  kReplayKeepsOrder,         // an entry is run again only after all that had finished before it began
  kResizeFromAWholeCut,      // servers change their number only with a checkpoint that holds all there is
  kEndIsOfOneDataset,        // the end of one dataset says nothing of the others that the step reads
  kLossWhileLoadingCounts,   // a server that is lost while it loads counts as a recovery
  kLateWorkerHasNoPart,      // a worker that joins a pass over data that was cut for fewer workers reads none of it
  kReadDataKeepsItsCut,      // data of which steps have read is not cut anew for a worker that comes
  kHorizonHasPasses,         // servers are told how far passes have got with the steps that they may forget
  kOneWorkerEndsNoJob,       // what one worker says of epoch, job or length of the data is its own error
  kEpochsArePlausible,       // an epoch that no coordinator of the job can have begun is nobody's word
  kPhantomsHaveNoShare,      // a worker that has never served takes no share of the data
  kSizeIsOfMost,             // what few workers say of the size of the data does not count
  kStepErrorsAreOfSteps,     // what a worker reports of a step has none of the reasons that end a job
  kLostDeviceFailsNoStep,    // a GPU that fails is not the error of the step that was running on it
  kLostDeviceEndsItsWorker,  // a worker whose GPU has failed runs no step any more
  kDeviceLossesAreCounted,   // a step that takes the GPUs of three workers with it is given up
  kAssignsAreNotMissed,      // a step runs beside a commit only if neither of the two assigns what the other needs
  kDepthCountsCommits,       // a step that commits while another runs is one of those that --pipeline_depth lets overlap
};
inline constexpr int kNumRules = static_cast<int>(Rule::kDepthCountsCommits) + 1;  // the last of them

#ifdef DIVVY_BREAKABLE

namespace internal {
inline std::atomic<bool> rule_broken[kNumRules] = {};
}  // namespace internal

// Thread-safe.
inline bool RuleHolds(Rule rule) { return !internal::rule_broken[static_cast<size_t>(rule)].load(std::memory_order_relaxed); }
inline void SetRuleBroken(Rule rule, bool broken) { internal::rule_broken[static_cast<size_t>(rule)].store(broken, std::memory_order_relaxed); }

#else

constexpr bool RuleHolds(Rule) { return true; }

#endif

}  // namespace divvy

#endif  // DIVVY_BASE_BREAKABLE_H_
