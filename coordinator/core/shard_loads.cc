#include "coordinator/core/shard_loads.h"

#include <utility>

namespace divvy {

void ShardLoads::Note(absl::Span<const SyncReply::Load> told, absl::Duration now) {
  Counts counts;
  for (const SyncReply::Load& load : told) counts[load.shard] = load.rows;
  const double seconds = absl::ToDoubleSeconds(now - begin_);  // -infinity at first
  const bool is_over = seconds >= absl::ToDoubleSeconds(kWindow);
  if (is_over || (!had_window_ && seconds > 0)) {
    rates_.clear();
    for (const auto& [shard, rows] : counts) {
      const auto before = at_begin_.find(shard);
      // Only the busiest shards are told, so the former count of another one is not known. A count
      // that is lower belongs to a shard that was loaded anew.
      if (before != at_begin_.end() && rows > before->second)
        rates_[shard] = static_cast<double>(rows - before->second) / seconds;
    }
  }
  if (seconds >= 0 && !is_over) return;
  had_window_ = had_window_ || is_over;
  at_begin_ = std::move(counts);
  begin_ = now;
}

}  // namespace divvy
