// How much the shards of the parameter servers are used.
#ifndef DIVVY_COORDINATOR_CORE_SHARD_LOADS_H_
#define DIVVY_COORDINATOR_CORE_SHARD_LOADS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"
#include "protocol/messages.h"
#include "variables/shard_key.h"

namespace divvy {

// The rates of one server's shards, from the counts that it tells in answer to Syncs. A rate is
// that of the last window of ten seconds, so that work that has moved on soon does not count. Not
// thread-safe.
class ShardLoads {
 public:
  // Bytes per second, for each of SyncReply::Load::kParts equal parts of the rows.
  using Rates = std::map<ShardKey, std::vector<double>>;

  // `told`: SyncReply::loads, told at `now`.
  void Note(absl::Span<const SyncReply::Load> told, absl::Duration now);
  // Whether the rates are those of five seconds or more.
  bool are_known() const { return window_ >= kLeastWindow; }
  // A shard that is not there is not used, or nothing is known of it yet.
  const Rates& bytes_per_second() const { return rates_; }

 private:
  using Counts = std::map<ShardKey, std::vector<uint64_t>>;

  static constexpr absl::Duration kWindow = absl::Seconds(10), kLeastWindow = absl::Seconds(5);
  // The counts at the begin of the window that is under way.
  Counts at_begin_;
  absl::Duration begin_ = absl::InfiniteDuration();
  // That of the rates.
  absl::Duration window_ = absl::ZeroDuration();
  Rates rates_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_SHARD_LOADS_H_
