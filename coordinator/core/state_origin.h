// Records which state a job continues from when its program starts: what the parameter servers hold
// (adoption.h), the newest checkpoint, or nothing.
#ifndef DIVVY_COORDINATOR_CORE_STATE_ORIGIN_H_
#define DIVVY_COORDINATOR_CORE_STATE_ORIGIN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/adoption.h"
#include "coordinator/core/store.h"
#include "protocol/clients.h"
#include "protocol/job_state.h"
#include "protocol/messages.h"

namespace divvy {

// The states to choose from, and the choice. Calls no other part and never blocks. Not thread-safe:
// the coordinator's lock guards it.
class StateOrigin {
 public:
  using RestoreCallback = ResultCallback<int64_t>;

  // `stored`, `found`: the store's content and the newest checkpoint when this life of the
  // coordinator began.
  StateOrigin(StoredJob stored, std::optional<JobState> found)
      : stored_(std::move(stored)), found_(std::move(found)) {}

  // ---- the available states ----

  // The store now has this row, of a state that is being adopted. Servers that have been told of
  // the adoption no longer report what the former row needs. If none was told, their horizons name
  // the lost steps once more, and ordinals are left out twice, which does no harm.
  void NoteStored(StateRow row) { stored_.state = std::move(row); }
  // All servers have reported what they hold.
  void NoteHeld(const std::vector<PsAttachReply>& replies) {
    held_ = WhatServersHold(replies, stored_);
  }
  // Replaces the newest checkpoint, because a later search has found another one, or the former one
  // is damaged.
  void SetFound(std::optional<JobState> found) { found_ = std::move(found); }
  const std::optional<JobState>& found() const { return found_; }
  // The state that may be adopted, or the reason why none may.
  const absl::StatusOr<JobState>& held() const { return held_; }
  // Whether the store describes a state that servers held.
  bool is_stored() const { return stored_.state.has_value(); }
  // The state that RestoreLatest continues with: what the servers hold, or else the newest
  // checkpoint. Null: there is none.
  const JobState* Restorable() const { return held_.ok() ? &*held_ : found_ ? &*found_ : nullptr; }
  // Names Restorable() in log lines and error messages.
  std::string Text() const {
    return held_.ok() ? "what the parameter servers hold"
           : found_   ? found_->checkpoint.name()
                      : "nothing";
  }

  // ---- the choice ----

  // Whether the state of the job is decided.
  bool is_chosen() const { return chosen_; }
  // The state of the job is decided from here on.
  void SetChosen() { chosen_ = true; }
  // The job continues with Restorable(). REQUIRES: it is not null.
  void Restore() { restored_ = Restorable()->checkpoint; }
  // Has a value once the job continues with Restorable(): the checkpoint, or CheckpointId() if the
  // servers' state is adopted. Nullopt: nothing is chosen yet, or the job begins anew.
  const std::optional<CheckpointId>& restored() const { return restored_; }
  // Whether the servers are being told to keep what they hold.
  bool is_adopting() const { return adopting_; }
  void SetAdopting(bool adopting) { adopting_ = adopting; }
  // The adoption is complete, and the adopted state has `steps` training steps. `unsaved`: no
  // checkpoint of this state exists yet, and the job makes one.
  void NoteAdopted(int64_t steps, bool unsaved) {
    adopting_ = false;
    adopted_steps_ = steps;
    unsaved_ = unsaved;
  }
  // The number of training steps in the adopted state. Nullopt: no state was adopted.
  std::optional<int64_t> adopted_steps() const { return adopted_steps_; }
  // Whether the state was adopted and no checkpoint has been committed since.
  bool is_unsaved() const { return unsaved_; }
  // A checkpoint has been committed.
  void NoteSaved() { unsaved_ = false; }
  // A server has restarted before the adoption was complete: the choice is open again.
  void TakeBack() {
    adopting_ = chosen_ = false;
    restored_.reset();
  }

  // ---- calls of RestoreLatest that wait ----

  // `done` waits for the choice. The caller answers it with TakeWaiters.
  void Await(RestoreCallback done) { waiters_.push_back(std::move(done)); }
  bool is_awaited() const { return !waiters_.empty(); }
  std::vector<RestoreCallback> TakeWaiters() { return std::exchange(waiters_, {}); }

 private:
  StoredJob stored_;
  std::optional<JobState> found_;
  absl::StatusOr<JobState> held_ =
      absl::FailedPreconditionError("the parameter servers have not reported what they hold yet");
  std::optional<CheckpointId> restored_;
  bool chosen_ = false;
  bool adopting_ = false;
  std::optional<int64_t> adopted_steps_;
  bool unsaved_ = false;
  std::vector<RestoreCallback> waiters_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STATE_ORIGIN_H_
