#include "ps_server/core/applied_table.h"

namespace divvy {

AppliedTable::State AppliedTable::Find(EntryId id) const {
  const auto found = entries_.find(id);
  return found == entries_.end() ? State::kUnknown : found->second.state;
}

void AppliedTable::Begin(const RememberedEntry& entry) {
  entries_[entry.id] = Entry{entry, State::kApplying};
}

void AppliedTable::Finish(EntryId id) {
  ++applied_seq_;
  if (keep_ == Keep::kHistory) ++history_[id];
  if (const auto found = entries_.find(id); found != entries_.end())
    found->second.state = State::kApplied;
}

void AppliedTable::Abandon(EntryId id) { entries_.erase(id); }

void AppliedTable::ForgetClosed() {
  for (auto it = entries_.begin(); it != entries_.end() && it->first < horizon_.next;) {
    const bool forget = it->second.state == State::kApplied && IsClosed(it->first);
    it = forget ? entries_.erase(it) : std::next(it);
  }
}

void AppliedTable::Clear() {
  entries_.clear();
  applied_seq_ = 0;
  history_.clear();
}

std::vector<RememberedEntry> AppliedTable::Applied() const {
  std::vector<RememberedEntry> applied;
  for (const auto& [id, entry] : entries_) {
    if (entry.state == State::kApplied) applied.push_back(entry.entry);
  }
  return applied;
}

std::vector<RememberedEntry> AppliedTable::Applied(absl::Span<const EntryId> query) const {
  std::vector<RememberedEntry> applied;
  for (EntryId id : query) {
    const auto found = entries_.find(id);
    if (found != entries_.end() && found->second.state == State::kApplied)
      applied.push_back(found->second.entry);
  }
  return applied;
}

}  // namespace divvy
