// Which state a job goes on from when its program starts: what the parameter servers hold
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
#include "cluster/clients.h"
#include "cluster/job_state.h"
#include "cluster/messages.h"
#include "coordinator/core/adoption.h"
#include "coordinator/core/store.h"

namespace divvy {

// What there is to go on from, and what was chosen. Calls nobody. Not thread-safe: the
// coordinator's lock guards it.
class StateOrigin {
 public:
  using RestoreCallback = ResultCallback<int64_t>;

  // `stored`: as this life of the coordinator found the store. `found`: the newest checkpoint.
  StateOrigin(StoredJob stored, std::optional<JobState> found)
      : stored_(std::move(stored)), found_(std::move(found)) {}

  // ---- what there is ----

  // All servers have said what they hold.
  void NoteHeld(const std::vector<PsAttachReply>& replies) {
    held_ = WhatServersHold(replies, stored_);
  }
  // The newest checkpoint, or an older one if that was damaged.
  void SetFound(std::optional<JobState> found) { found_ = std::move(found); }
  const std::optional<JobState>& found() const { return found_; }
  // What may be adopted, or why it may not.
  const absl::StatusOr<JobState>& held() const { return held_; }
  // Whether the store tells of a state that servers held once.
  bool is_stored() const { return stored_.state.has_value(); }
  // What RestoreLatest goes on with. Null: nothing is there.
  const JobState* Restorable() const { return held_.ok() ? &*held_ : found_ ? &*found_ : nullptr; }
  // The same, for a person.
  std::string Text() const {
    return held_.ok() ? "what the parameter servers hold"
           : found_   ? found_->checkpoint.name()
                      : "nothing";
  }

  // ---- the choice ----

  // Whether it is decided what the state is made from.
  bool is_chosen() const { return chosen_; }
  void SetChosen() { chosen_ = true; }
  // The job goes on with Restorable().
  void Restore() { restored_ = Restorable()->checkpoint; }
  // Has a value once the job goes on with Restorable(): the checkpoint that it goes on from, or
  // CheckpointId() where it adopts what the servers hold. Nullopt: nothing is chosen, or the job
  // begins anew.
  const std::optional<CheckpointId>& restored() const { return restored_; }
  // Whether the servers are told to keep what they hold.
  bool is_adopting() const { return adopting_; }
  void SetAdopting(bool adopting) { adopting_ = adopting; }
  // The servers serve what they hold: so many steps are in it. `unsaved`: a checkpoint is wanted.
  void NoteAdopted(int64_t steps, bool unsaved) {
    adopting_ = false;
    adopted_steps_ = steps;
    unsaved_ = unsaved;
  }
  std::optional<int64_t> adopted_steps() const { return adopted_steps_; }
  // Whether the state was adopted, and no checkpoint has been committed since.
  bool is_unsaved() const { return unsaved_; }
  void NoteSaved() { unsaved_ = false; }
  // A server has restarted meanwhile: the choice is open again.
  void TakeBack() {
    adopting_ = chosen_ = false;
    restored_.reset();
  }

  // ---- calls of RestoreLatest that wait ----

  void Await(RestoreCallback done) { waiters_.push_back(std::move(done)); }
  bool is_awaited() const { return !waiters_.empty(); }
  std::vector<RestoreCallback> TakeWaiters() { return std::exchange(waiters_, {}); }

 private:
  const StoredJob stored_;
  std::optional<JobState> found_;
  absl::StatusOr<JobState> held_ = absl::FailedPreconditionError("nobody has looked");
  std::optional<CheckpointId> restored_;
  bool chosen_ = false;
  bool adopting_ = false;
  std::optional<int64_t> adopted_steps_;
  bool unsaved_ = false;
  std::vector<RestoreCallback> waiters_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_STATE_ORIGIN_H_
