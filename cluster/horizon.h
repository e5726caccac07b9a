// What is closed: how a parameter server can forget.
#ifndef DIVVY_CLUSTER_HORIZON_H_
#define DIVVY_CLUSTER_HORIZON_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cluster/ids.h"

namespace divvy {

// The coordinator's word on which entries can still arrive. An id below `next` that is not in `open` is closed: a parameter server forgets it and refuses it.
// Closing is for ever: of two horizons of one epoch the later closes all that the earlier does. A plain value.
//
//   Horizon{EntryId(10), {EntryId(4), EntryId(7)}}: 4, 7 and whatever is from 10 on may come; 5 is closed
struct Horizon {
  EntryId next;                 // ids from here on have not been dispatched yet in this epoch
  std::vector<EntryId> open;    // ids below `next` that may still be applied; sorted
  uint64_t finished_steps = 0;  // finished steps with ids below `next`

  bool IsClosed(EntryId id) const { return id < next && !std::binary_search(open.begin(), open.end(), id); }
};

}  // namespace divvy

#endif  // DIVVY_CLUSTER_HORIZON_H_
