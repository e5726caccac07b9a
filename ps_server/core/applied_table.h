// Records which entries have been applied, so that a commit counts once.
#ifndef DIVVY_PS_SERVER_CORE_APPLIED_TABLE_H_
#define DIVVY_PS_SERVER_CORE_APPLIED_TABLE_H_

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "protocol/horizon.h"
#include "protocol/ids.h"
#include "protocol/messages.h"

namespace divvy {

// Entries that are being applied or have been applied, by id (never by attempt), and the horizon,
// which tells the closed entries. An entry is added before its first byte is written, so that a
// retry that arrives meanwhile finds it.
//
// A closed entry is refused before anybody looks for it here, so it can be forgotten. Only entries
// that are not closed take memory. Not thread-safe: the core's lock guards it.
//
//   kUnknown  --Begin-->  kApplying  --Finish-->  kApplied  --ForgetClosed-->  kUnknown
//                         kApplying  --Abandon--> kUnknown
class AppliedTable {
 public:
  enum class State : uint8_t { kUnknown, kApplying, kApplied };
  enum class Keep : uint8_t { kUnclosed, kHistory };

  // kHistory: counts how often each entry was applied, for tests. Grows without bound.
  explicit AppliedTable(Keep keep = Keep::kUnclosed) : keep_(keep) {}

  State Find(EntryId id) const;
  // The entry is being applied from now on.
  void Begin(const RememberedEntry& entry);
  // The entry has been applied; applied_seq() rises.
  void Finish(EntryId id);
  // The entry was refused before it wrote anything: it is unknown again.
  void Abandon(EntryId id);

  // Sets the horizon. Closed ids are forgotten only by ForgetClosed.
  void TakeHorizon(Horizon horizon) { horizon_ = std::move(horizon); }
  const Horizon& horizon() const { return horizon_; }
  bool IsClosed(EntryId id) const { return horizon_.IsClosed(id); }
  // Forgets closed ids that have been applied. An id that is still applying is kept until it is
  // settled.
  void ForgetClosed();

  // Forgets everything except the horizon, and counts from 0: another lineage begins.
  void Clear();

  // The applied entries, by id.
  std::vector<RememberedEntry> Applied() const;
  // The applied entries among `query`, in its order.
  std::vector<RememberedEntry> Applied(absl::Span<const EntryId> query) const;
  size_t size() const { return entries_.size(); }
  // Number of commits applied in this lineage.
  uint64_t applied_seq() const { return applied_seq_; }
  // kHistory: how often each entry was applied in this lineage. Otherwise empty.
  const std::map<EntryId, int>& history() const { return history_; }

 private:
  struct Entry {
    RememberedEntry entry;
    State state = State::kApplying;
  };
  const Keep keep_;
  Horizon horizon_;
  std::map<EntryId, Entry> entries_;
  uint64_t applied_seq_ = 0;
  std::map<EntryId, int> history_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_APPLIED_TABLE_H_
