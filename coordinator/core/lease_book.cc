#include "coordinator/core/lease_book.h"

#include <algorithm>

namespace divvy {

void LeaseBook::SetEnd(int64_t elements) { end_ = end_ ? std::min(*end_, elements) : elements; }

std::optional<std::pair<int64_t, int64_t>> LeaseBook::TakeFrom(Range& range, int64_t per_step) const {
  const int64_t limit = end_ ? std::min(range.first + range.count, *end_) : range.first + range.count;
  const int64_t count = std::min(per_step, limit - range.first);
  if (count <= 0) return std::nullopt;
  const std::pair<int64_t, int64_t> taken(range.first, count);
  range = {range.first + count, range.count - count};
  return taken;
}

std::optional<std::pair<int64_t, int64_t>> LeaseBook::Take(int worker, int64_t per_step) {
  while (!returned_.empty()) {
    Range range{returned_.begin()->first, returned_.begin()->second};
    returned_.erase(returned_.begin());
    const auto taken = TakeFrom(range, per_step);
    if (!taken) continue;   // past the end
    if (range.count > 0) returned_.emplace(range.first, range.count);
    return taken;
  }
  Range& chunk = chunks_.try_emplace(worker, Range{0, 0}).first->second;
  if (const auto taken = TakeFrom(chunk, per_step)) return taken;
  chunk = {next_, kChunk * per_step};
  next_ += chunk.count;
  return TakeFrom(chunk, per_step);
}

void LeaseBook::WorkerGone(int worker) {
  const auto chunk = chunks_.find(worker);
  if (chunk == chunks_.end()) return;
  if (chunk->second.count > 0) GiveBack(chunk->second.first, chunk->second.count);
  chunks_.erase(chunk);
}

bool LeaseBook::exhausted() const {
  if (!end_ || next_ < *end_) return false;
  const auto has_some = [this](int64_t first, int64_t count) { return count > 0 && first < *end_; };
  return std::none_of(returned_.begin(), returned_.end(), [&](const auto& range) { return has_some(range.first, range.second); }) &&
         std::none_of(chunks_.begin(), chunks_.end(), [&](const auto& entry) { return has_some(entry.second.first, entry.second.count); });
}

}  // namespace divvy
