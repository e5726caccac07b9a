// When the rows of dynamic tables are looked at by their tables' rules.
#ifndef DIVVY_COORDINATOR_CORE_EVICTION_SCHEDULE_H_
#define DIVVY_COORDINATOR_CORE_EVICTION_SCHEDULE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "protocol/ids.h"
#include "protocol/messages.h"
#include "variables/layout.h"

namespace divvy {

// EvictUnusedFor and EvictBelowNorm act by writes of the coordinator, which are entries of the
// job's history as other writes are. A pass over a table is spread over a quarter of the time that
// EvictUnusedFor names, at least a minute and at most an hour; for EvictBelowNorm over an hour.
// Each write is for as few buckets as one write in a second or so allows, so that no step waits
// long for it.
//
// A coordinator may be restarted before a pass is over, or before its second write is due. So the
// first write of a table is due at once, and its place follows from the epoch, which no restart
// gives again: places of neighbouring epochs are spread over all buckets. Pure; not thread-safe.
class EvictionSchedule {
 public:
  using CommitPlan = std::map<int, std::vector<CommitPart>>;  // by ps
  // Of one write, at most.
  static constexpr int64_t kBuckets = 1024;

  // The next write that is due at `now`; empty: none is. At most one write is due at a time, and
  // the caller asks again when it has been applied. `tick` is what the rows' ticks are compared
  // with. `epoch` is the current one.
  CommitPlan Next(const Layout& layout, uint32_t tick, absl::Duration now, Epoch epoch);

 private:
  struct Pass {
    VariableId table;
    int64_t buckets = kBuckets;  // of a write
    absl::Duration between;      // two writes
    absl::Duration due;
    int64_t bucket = 0;  // the first one of the next write
  };
  // Finds the tables of a layout, if it is another one than the last.
  void LookAt(const Layout& layout, absl::Duration now, Epoch epoch);

  uint64_t layout_hash_ = 0;
  std::vector<Pass> passes_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_EVICTION_SCHEDULE_H_
