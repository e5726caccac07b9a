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

// How far a pass over leased data has got with the steps of a cut, or of a horizon: which of its positions none of them has read. A plain value.
struct PassProgress {
  ResourceId iterator;                // that reads the pass
  bool in_loop = false;               // a loop reads it now: it counts as an epoch when that is told of its end
  bool is_series = false;             // not data: the numbers of a series of steps (StepNumber); those that are not unread have finished
  bool of_program = false;            // the program's own steps read it, and only the program knows when it has read enough
  int64_t finished = 0;               // steps of the loop over it
  int64_t next = 0;                   // positions from here on were given to nobody
  std::map<int64_t, int64_t> unread;  // first -> count, below `next`: given, and not read by one of these steps
  std::optional<int64_t> end;         // there is nothing from this position on
  bool end_is_exact = false;          // and something right before it
};

// The coordinator's word on which entries can still arrive. An id below `next` that is not in `open` is closed: a parameter server forgets it and refuses it.
// Closing is for ever: of two horizons of one epoch the later closes all that the earlier does. A plain value.
//
//   Horizon{EntryId(10), {EntryId(4), EntryId(7)}}: 4, 7 and whatever is from 10 on may come; 5 is closed
struct Horizon {
  EntryId next;                 // ids from here on have not been dispatched yet in this epoch
  std::vector<EntryId> open;    // ids below `next` that may still be applied; sorted
  uint64_t finished_steps = 0;  // finished steps with ids below `next`
  // Training passes over leased data, as the finished steps below `next` have left them. A coordinator that adopts the servers' state adds what the steps that
  // are not closed have read (RememberedEntry::inputs).
  std::vector<PassProgress> passes = {};

  bool IsClosed(EntryId id) const { return id < next && !std::binary_search(open.begin(), open.end(), id); }
};

}  // namespace divvy

#endif  // DIVVY_CLUSTER_HORIZON_H_
