// Decides whether a restarted coordinator may continue with the state that the parameter servers
// still hold in memory, and computes that state. An adoption loses no finished step and reads no
// checkpoint.
//
// Each server has attached in the new epoch. A server that has attached applies nothing of an older
// epoch any more, so its answer is final. The servers together hold a state of the job if all of
// these are true:
//
// - Every server is FROZEN and has the lineage that is in the store. So no server has restarted,
//   and everything that the store says about this lineage describes this state.
// - No layout change was under way. The store gets a variable's row only after every server has
//   made its shards. A server that knows a later layout than the store has therefore made shards of
//   a change that was never confirmed.
// - The store knows everything that no server holds, and no variable waits for its first values.
//   The store has the passes over leased data that are under way. The servers have the position of
//   each pass: the newest horizon has the positions that its closed steps have read, and each entry
//   that is still open has the positions that its own step has read.
// - No entry is half applied. Closing only grows, so the newest horizon among the replies decides
//   which entries are closed. An open id is whole if n servers have applied it and each of them
//   reports n participants. Otherwise it is half applied, and no run will complete it.
#ifndef DIVVY_COORDINATOR_CORE_ADOPTION_H_
#define DIVVY_COORDINATOR_CORE_ADOPTION_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/core/store.h"
#include "protocol/ids.h"
#include "protocol/job_state.h"
#include "protocol/messages.h"

namespace divvy {

// The state that all servers together hold. `replies` are the answers of ps 0, 1, ... to the Attach
// of the new epoch; `stored` is the store's content. Pure.
//
// In the result, finished_steps counts every whole step, even one that the former coordinator had
// no report of. next_ordinal is above every ordinal that one of these steps may have, unless steps
// have failed since the store was written.
//
// FailedPrecondition: the state cannot be adopted. The message tells an operator why. The caller
// goes on from the newest checkpoint, or begins anew.
absl::StatusOr<JobState> WhatServersHold(const std::vector<PsAttachReply>& replies,
                                         const StoredJob& stored);

// Everything that a StateRow depends on besides the layout. When it changes, the store must be
// updated before the next entry gets an id.
struct StoredMark {
  StateRow::Held held = StateRow::Held::kAll;
  int64_t epochs = 0;
  // How often SetProgramState was called.
  uint64_t program_states = 0;
  // Ordinals of steps that failed or were cancelled.
  int64_t lost_ordinals = 0;
  // Passes begun, over all sources.
  int64_t passes = 0;
  // How often a training pass has begun, has been resumed or was dropped.
  int64_t pass_changes = 0;
  // Minutes in which the job has run (Dispatch::tick). So they do not go back in an adoption.
  uint32_t tick = 0;
  friend bool operator==(const StoredMark& a, const StoredMark& b) {
    return a.held == b.held && a.epochs == b.epochs && a.program_states == b.program_states &&
           a.lost_ordinals == b.lost_ordinals && a.passes == b.passes &&
           a.pass_changes == b.pass_changes && a.tick == b.tick;
  }
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_ADOPTION_H_
