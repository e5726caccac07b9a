// Whether a coordinator that is started again may go on with what the parameter servers hold, so
// that nothing that has finished is lost and nothing is read from a disk; and what that is.
//
// Each server was attached in the new epoch, so it has said the last word on all older ones:
// nothing of them is applied any more. Then the servers together hold a state of the job if
//
//   - each of them is FROZEN with the lineage that the store has: none has restarted, and all that
//   the store tells of that lineage is of this very state;
//   - no layout change was under way: the store's rows are written when every server has carried a
//     change out, so one that knows a later layout than the
//     store was told of one that nobody has confirmed;
//   - the store knows all that is in no server: no variable waits for its first values. Which
//     passes over leased data are under way is in the store; how far each has got is in the
//     servers: the newest horizon has it as the steps that it closes have left it, and each entry
//     that it does not close has the
//     positions that the step has read;
//   - no entry is half applied. The newest horizon among the replies knows best what is closed, for
//     closing only grows. An id that it does not close is whole if n servers have applied it and
//     each of them says that it was for n; else it is half applied, and no run will complete it.
#ifndef DIVVY_COORDINATOR_CORE_ADOPTION_H_
#define DIVVY_COORDINATOR_CORE_ADOPTION_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cluster/ids.h"
#include "cluster/job_state.h"
#include "cluster/messages.h"
#include "coordinator/core/store.h"

namespace divvy {

// What all servers together hold, by `replies` of ps 0, 1, ... to the Attach of the new epoch, and
// by the store. Its finished_steps are all that are whole, whether or not the former coordinator
// had heard of them; its next_ordinal is above every ordinal that a step in it may have had, as far
// as steps have not failed since the store was written. FailedPrecondition, to be read by a person:
// why it cannot be adopted.
absl::StatusOr<JobState> WhatServersHold(const std::vector<PsAttachReply>& replies,
                                         const StoredJob& stored);

// What a StateRow depends on beside the layout: where this has changed, the store is told before
// the next entry is given an id.
struct StoredMark {
  StateRow::Held held = StateRow::Held::kAll;
  int64_t epochs = 0;
  uint64_t program_states = 0;  // how often SetProgramState was called
  int64_t lost_ordinals = 0;    // of steps that failed or were cancelled
  int64_t passes = 0;           // begun, of all sources
  int64_t pass_changes = 0;     // how often a training pass has begun, been taken up or dropped
  friend bool operator==(const StoredMark& a, const StoredMark& b) {
    return a.held == b.held && a.epochs == b.epochs && a.program_states == b.program_states &&
           a.lost_ordinals == b.lost_ordinals && a.passes == b.passes &&
           a.pass_changes == b.pass_changes;
  }
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_ADOPTION_H_
