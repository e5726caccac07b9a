// Named moments of the protocol at which a test may end a process: before, within and behind each
// change that others must be able to count on.
//
// In what ships HitFailpoint is empty and costs nothing. In the testonly build of the cores
// (-DDIVVY_BREAKABLE, base/breakable.h) it tells the one observer of the process, which is called
// with the core's lock held and so may call no core: the simulation marks the process as dead, and
// nothing leaves it any more.
//
//   applied_.Begin(entry);
//   HitFailpoint(Failpoint::kPushBegun);
#ifndef DIVVY_BASE_FAILPOINT_H_
#define DIVVY_BASE_FAILPOINT_H_

#include "absl/strings/string_view.h"
#ifdef DIVVY_BREAKABLE
#include <atomic>
#endif

namespace divvy {

enum class Failpoint {
  // a ps: a commit
  kPushBeforeDedupe,
  kPushBegun,        // remembered as being applied
  kPushMidApply,     // some of its blocks are changed
  kPushBlocksDone,   // all are, and it is not remembered as applied
  kPushBeforeReply,  // it is
  kPushAfterReply,
  // a ps: a pull
  kPullBegun,
  kPullMidRead,
  // a ps: its part of a checkpoint
  kSnapshotBeforeMark,
  kSnapshotMarked,
  kSnapshotMidData,
  kSnapshotBeforeSync,     // of the data file
  kSnapshotBeforeDirSync,  // the data is on the disk, its name perhaps not
  kSnapshotSynced,         // and nobody has been told
  kLoadIndexRead,
  kLoadMidData,
  kLoadBeforeReady,
  // a ps: fences
  // Its sessions are replaced, and what the old ones were doing still runs.
  kSyncBeforeWait,
  kSyncAfterWait,
  kAttachEpochTaken,
  // the coordinator
  kEpochBeforeStored,
  kEpochStored,
  kIdBlockStored,
  kDispatched,
  kFencedBeforeRequeue,
  kHoldBeforeAllHeld,
  kMarkedBeforeRelease,
  kIndexBeforeRename,
  kIndexRenamedBeforeStored,
  kCollectBegun,
  // The index of an old checkpoint is gone, its data is not.
  kCollectMidRemove,
  kLoadBetweenServers,
  kRegisterBeforeReply,
  kSessionBeforeSync,
  kStepsReconnect,
  // a worker
  kStepPulled,
  kStepComputed,
  kStepFirstCommitDone,
  kStepCommittedBeforeReport,
  kStepHeld,
};
inline constexpr int kNumFailpoints = static_cast<int>(Failpoint::kStepHeld) + 1;

// "ps.push.mid_apply"
constexpr absl::string_view FailpointName(Failpoint point) {
  constexpr absl::string_view kNames[] = {"ps.push.before_dedupe",
                                          "ps.push.begun",
                                          "ps.push.mid_apply",
                                          "ps.push.blocks_done",
                                          "ps.push.before_reply",
                                          "ps.push.after_reply",
                                          "ps.pull.begun",
                                          "ps.pull.mid_read",
                                          "ps.snapshot.before_mark",
                                          "ps.snapshot.marked",
                                          "ps.snapshot.mid_data",
                                          "ps.snapshot.before_sync",
                                          "ps.snapshot.before_dir_sync",
                                          "ps.snapshot.synced",
                                          "ps.load.index_read",
                                          "ps.load.mid_data",
                                          "ps.load.before_ready",
                                          "ps.sync.before_wait",
                                          "ps.sync.after_wait",
                                          "ps.attach.epoch_taken",
                                          "coordinator.epoch.before_stored",
                                          "coordinator.epoch.stored",
                                          "coordinator.id_block.stored",
                                          "coordinator.dispatched",
                                          "coordinator.fenced_before_requeue",
                                          "coordinator.hold.before_all_held",
                                          "coordinator.marked_before_release",
                                          "coordinator.index.before_rename",
                                          "coordinator.index.renamed_before_stored",
                                          "coordinator.collect.begun",
                                          "coordinator.collect.mid_remove",
                                          "coordinator.load.between_servers",
                                          "coordinator.register.before_reply",
                                          "coordinator.session.before_sync",
                                          "coordinator.steps.reconnect",
                                          "worker.step.pulled",
                                          "worker.step.computed",
                                          "worker.step.first_commit_done",
                                          "worker.step.committed_before_report",
                                          "worker.step.held"};
  static_assert(sizeof kNames / sizeof kNames[0] == kNumFailpoints, "a name for each");
  return kNames[static_cast<int>(point)];
}

class FailpointObserver {
 public:
  virtual ~FailpointObserver() = default;
  virtual void OnFailpoint(Failpoint point) = 0;
};

#ifdef DIVVY_BREAKABLE

namespace internal {
inline std::atomic<FailpointObserver*> failpoint_observer = {nullptr};
}  // namespace internal

inline constexpr bool kHasFailpoints = true;
// Thread-safe. One at a time; null: nobody.
inline void SetFailpointObserver(FailpointObserver* observer) {
  internal::failpoint_observer.store(observer, std::memory_order_release);
}
inline void HitFailpoint(Failpoint point) {
  if (FailpointObserver* const observer =
          internal::failpoint_observer.load(std::memory_order_acquire))
    observer->OnFailpoint(point);
}

#else

inline constexpr bool kHasFailpoints = false;
inline void SetFailpointObserver(FailpointObserver*) {}
inline void HitFailpoint(Failpoint) {}

#endif

}  // namespace divvy

#endif  // DIVVY_BASE_FAILPOINT_H_
