// How much the shards of the parameter servers are used.
#ifndef DIVVY_COORDINATOR_CORE_SHARD_LOADS_H_
#define DIVVY_COORDINATOR_CORE_SHARD_LOADS_H_

#include <cstdint>
#include <map>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "protocol/messages.h"
#include "variables/shard_key.h"

namespace divvy {

// The rates of one server's shards, from the counts that it tells in answer to Syncs. A rate is
// that of the last ten seconds, so that work that has moved on does not count. Not thread-safe.
class ShardLoads {
 public:
  // `told`: SyncReply::loads, told at `now`.
  void Note(absl::Span<const SyncReply::Load> told, absl::Duration now);
  // Rows that were read or written, per second. A shard that is not there is not used, or nothing
  // is known of it yet.
  const std::map<ShardKey, double>& rows_per_second() const { return rates_; }

 private:
  using Counts = std::map<ShardKey, uint64_t>;

  static constexpr absl::Duration kWindow = absl::Seconds(10);
  // The counts at the begin of the window that is under way.
  Counts at_begin_;
  absl::Duration begin_ = absl::InfiniteDuration();
  bool had_window_ = false;
  std::map<ShardKey, double> rates_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_SHARD_LOADS_H_
