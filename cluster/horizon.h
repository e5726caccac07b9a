// What is closed: how a parameter server can forget.
#ifndef DIVVY_CLUSTER_HORIZON_H_
#define DIVVY_CLUSTER_HORIZON_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cluster/ids.h"

namespace divvy {

// How far a pass over leased data has got with the steps of a cut, or of a horizon: which of its
// positions none of them has read. A plain value.
struct PassProgress {
  // That reads the pass.
  ResourceId iterator;
  // A loop reads it now: it counts as an epoch when that is told of its end.
  bool in_loop = false;
  // Not data: the numbers of a series of steps (StepNumber); those that are not unread have
  // finished.
  bool is_series = false;
  // The program's own steps read it, and only the program knows when it has read enough.
  bool of_program = false;
  // steps of the loop over it
  int64_t finished = 0;
  // positions from here on were given to nobody
  int64_t next = 0;
  // first -> count, below `next`: given, and not read by one of these steps
  std::map<int64_t, int64_t> unread;
  // There is nothing from this position on.
  std::optional<int64_t> end;
  // And something right before it.
  bool end_is_exact = false;
};

// The coordinator's word on which entries can still arrive. An id below `next` that is not in
// `open` is closed: a parameter server forgets it and refuses it. Closing is for ever: of two
// horizons of one epoch the later closes all that the earlier does. A plain value.
//
//   Horizon{EntryId(10), {EntryId(4), EntryId(7)}}: 4, 7 and whatever is from 10 on may come; 5 is
//   closed
struct Horizon {
  // ids from here on have not been dispatched yet in this epoch
  EntryId next;
  // ids below `next` that may still be applied; sorted
  std::vector<EntryId> open;
  // finished steps with ids below `next`
  uint64_t finished_steps = 0;
  // Training passes over leased data, as the finished steps below `next` have left them. A
  // coordinator that adopts the servers' state adds what the steps that are not closed have read
  // (RememberedEntry::inputs).
  std::vector<PassProgress> passes = {};

  bool IsClosed(EntryId id) const {
    return id < next && !std::binary_search(open.begin(), open.end(), id);
  }
};

}  // namespace divvy

#endif  // DIVVY_CLUSTER_HORIZON_H_
