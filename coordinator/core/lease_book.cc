#include "coordinator/core/lease_book.h"

#include <algorithm>

namespace divvy {

LeaseBook::LeaseBook(const PassProgress& pass)
    : end_(pass.end), end_known_(pass.end_is_exact), next_(pass.next), returned_(pass.unread) {}

void LeaseBook::Save(PassProgress& pass) const {
  pass.next = next_;
  pass.unread = returned_;
  for (const auto& [worker, chunk] : chunks_) {
    if (chunk.count > 0) pass.unread.emplace(chunk.first, chunk.count);
  }
  pass.end = end_;
  pass.end_is_exact = end_known_;
}

void LeaseBook::SetEnd(int64_t elements, bool exact) {
  end_ = end_ ? std::min(*end_, elements) : elements;
  end_known_ = end_known_ || exact;
}

int64_t LeaseBook::Usable(const Range& range) const {
  return std::max<int64_t>(0, end_ ? std::min(range.count, *end_ - range.first) : range.count);
}

std::optional<std::pair<int64_t, int64_t>> LeaseBook::TakeFrom(Range& range,
                                                               int64_t per_step) const {
  const int64_t count = std::min(per_step, Usable(range));
  if (count == 0) return std::nullopt;
  const std::pair<int64_t, int64_t> taken(range.first, count);
  range = {range.first + count, range.count - count};
  return taken;
}

// The next positions that are in no chunk. If the end is known or can be estimated, a chunk has at
// most a quarter of the rest, so that the last chunks are short. Otherwise it has at most a quarter
// of the positions given before, so that few positions beyond the end are tried.
LeaseBook::Range LeaseBook::NewChunk(int64_t per_step) {
  const std::optional<int64_t> expected = end_ ? end_ : hint_;
  const int64_t quarter = (expected ? *expected - next_ : next_) / (4 * per_step);
  const int64_t steps = std::clamp<int64_t>(quarter, 1, kChunk);
  const Range chunk{next_, steps * per_step};
  next_ += chunk.count;
  return chunk;
}

// Takes the second half of the longest chunk, in whole steps.
LeaseBook::Range LeaseBook::Steal(int64_t per_step) {
  const auto longest = std::max_element(
      chunks_.begin(), chunks_.end(),
      [this](const auto& a, const auto& b) { return Usable(a.second) < Usable(b.second); });
  const int64_t usable = Usable(longest->second), kept = usable / per_step / 2 * per_step;
  const Range stolen{longest->second.first + kept, usable - kept};
  longest->second.count = kept;
  return stolen;
}

std::optional<std::pair<int64_t, int64_t>> LeaseBook::Take(int worker, int64_t per_step) {
  if (!returned_.empty()) {
    Range range{returned_.begin()->first, returned_.begin()->second};
    // Otherwise all returned positions are past the end.
    if (const auto taken = TakeFrom(range, per_step)) {
      returned_.erase(returned_.begin());
      if (range.count > 0) returned_.emplace(range.first, range.count);
      return taken;
    }
  }
  Range& chunk = chunks_.try_emplace(worker, Range{0, 0}).first->second;
  if (const auto taken = TakeFrom(chunk, per_step)) return taken;
  // What is left of the chunk lies past the end, as far as the end is known now.
  GiveBack(chunk.first, chunk.count);
  chunk = Range{0, 0};
  chunk = !end_ || next_ < *end_ ? NewChunk(per_step) : Steal(per_step);
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
  return std::none_of(returned_.begin(), returned_.end(),
                      [&](const auto& range) { return has_some(range.first, range.second); }) &&
         std::none_of(chunks_.begin(), chunks_.end(), [&](const auto& entry) {
           return has_some(entry.second.first, entry.second.count);
         });
}

}  // namespace divvy
