// Named moments of the protocol at which a test may end a process: before, during and after each
// change on which others rely.
//
// In released binaries HitFailpoint is empty and costs nothing. In the testonly build of the cores
// (-DDIVVY_BREAKABLE, base/breakable.h) it calls the process' one observer. The observer runs with
// the core's lock held, so it must not call a core. The simulation's observer marks the process as
// dead; from then on it sends nothing.
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
  // A commit on a ps.
  kPushBeforeDedupe,
  // The entry is recorded as being applied.
  kPushBegun,
  // Some of its blocks have changed.
  kPushMidApply,
  // All blocks have changed; the entry is not yet recorded as applied.
  kPushBlocksDone,
  // The entry is recorded as applied.
  kPushBeforeReply,
  kPushAfterReply,
  // A pull on a ps.
  kPullBegun,
  kPullMidRead,
  // A part of a checkpoint on a ps.
  kSnapshotBeforeMark,
  kSnapshotMarked,
  kSnapshotMidData,
  // Before the data file is synced.
  kSnapshotBeforeSync,
  // The data is on the disk; the file's name may not be.
  kSnapshotBeforeDirSync,
  // All is on the disk, and no other task knows it.
  kSnapshotSynced,
  kLoadIndexRead,
  kLoadMidData,
  kLoadBeforeReady,
  // Fences on a ps.
  //
  // The sessions are replaced; commits of the former sessions are still running.
  kSyncBeforeWait,
  kSyncAfterWait,
  kAttachEpochTaken,
  // The coordinator.
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
  // The index of an old checkpoint is removed, its data is not.
  kCollectMidRemove,
  kLoadBetweenServers,
  kRegisterBeforeReply,
  kSessionBeforeSync,
  kStepsReconnect,
  // A worker.
  kStepPulled,
  kStepComputed,
  kStepFirstCommitDone,
  kStepCommittedBeforeReport,
  kStepHeld,
};
inline constexpr int kNumFailpoints = static_cast<int>(Failpoint::kStepHeld) + 1;

// The name of a failpoint: "ps.push.mid_apply".
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
// Sets the observer. Null means none. Thread-safe.
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
