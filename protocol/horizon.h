// Which entries are closed, so that a parameter server can forget them.
#ifndef DIVVY_PROTOCOL_HORIZON_H_
#define DIVVY_PROTOCOL_HORIZON_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "protocol/ids.h"

namespace divvy {

// The progress of a pass over leased data at a cut or in a horizon. It tells which positions of the
// pass the covered steps have not read. A plain value.
struct PassProgress {
  // The iterator that reads the pass.
  ResourceId iterator;
  // A loop reads the pass now. The pass counts as an epoch when the loop learns of its end.
  bool in_loop = false;
  // The positions are not data but the numbers of a series of steps (StepNumber). A number below
  // `next` that is not in `unread` belongs to a finished step.
  bool is_series = false;
  // The program's own steps read the pass. Only the program knows when it has read enough.
  bool of_program = false;
  // finished steps of the loop over this pass
  int64_t finished = 0;
  // positions from here on have not been leased to any step
  int64_t next = 0;
  // first -> count: ranges below `next` that were leased but not read by one of these steps
  std::map<int64_t, int64_t> unread;
  // No elements exist from this position on. Absent: the end is not known.
  std::optional<int64_t> end;
  // An element exists directly before `end`.
  bool end_is_exact = false;
};

// The coordinator's statement of which entries can still arrive. An id below `next` that is not in
// `open` is closed: a parameter server forgets it and refuses it. Closing is permanent: of two
// horizons of one epoch, the later one closes every id that the earlier one closes. A plain value.
//
//   // 4, 7 and all ids from 10 on may still come; 5 is closed
//   Horizon{EntryId(10), {EntryId(4), EntryId(7)}}
struct Horizon {
  // ids from here on have not been dispatched yet in this epoch
  EntryId next;
  // ids below `next` that may still be applied; sorted
  std::vector<EntryId> open;
  // finished steps with ids below `next`
  uint64_t finished_steps = 0;
  // Training passes over leased data, with the progress of the finished steps below `next`. A
  // coordinator that adopts the servers' state adds the positions that steps with open ids have
  // read (RememberedEntry::inputs).
  std::vector<PassProgress> passes = {};

  bool IsClosed(EntryId id) const {
    return id < next && !std::binary_search(open.begin(), open.end(), id);
  }
};

}  // namespace divvy

#endif  // DIVVY_PROTOCOL_HORIZON_H_
