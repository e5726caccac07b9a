#include "coordinator/core/shard_loads.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace divvy {
namespace {

// A server tells no more shards (SyncReply::loads), so the former count of another one may not be
// known.
constexpr size_t kMostTold = 256;

// A count that is lower belongs to a shard that was loaded anew.
std::vector<double> RatesOf(const std::vector<uint64_t>& before, const std::vector<uint64_t>& now,
                            double seconds) {
  std::vector<double> rates(now.size());
  for (size_t i = 0; i < std::min(before.size(), now.size()); ++i)
    rates[i] = now[i] > before[i] ? static_cast<double>(now[i] - before[i]) / seconds : 0;
  return rates;
}

}  // namespace

void ShardLoads::Note(absl::Span<const SyncReply::Load> told, absl::Duration now) {
  Counts counts;
  for (const SyncReply::Load& load : told) counts[load.shard] = load.bytes;
  const bool is_first = begin_ == absl::InfiniteDuration();
  const absl::Duration window = is_first ? absl::ZeroDuration() : now - begin_;
  const bool is_over = window >= kWindow;
  // The first window counts before it is over, because nothing else is known.
  if (is_over || (window_ < kWindow && window > absl::ZeroDuration())) {
    window_ = window;
    rates_.clear();
    const bool all_were_told = at_begin_.size() < kMostTold;
    for (const auto& [shard, bytes] : counts) {
      const auto before = at_begin_.find(shard);
      if (before != at_begin_.end())
        rates_[shard] = RatesOf(before->second, bytes, absl::ToDoubleSeconds(window));
      else if (all_were_told)  // nobody had used it
        rates_[shard] =
            RatesOf(std::vector<uint64_t>(bytes.size()), bytes, absl::ToDoubleSeconds(window));
    }
  }
  if (!is_first && !is_over) return;
  at_begin_ = std::move(counts);
  begin_ = now;
}

}  // namespace divvy
