// Which entries were applied: what makes a commit count once.
#ifndef DIVVY_PS_SERVER_CORE_APPLIED_TABLE_H_
#define DIVVY_PS_SERVER_CORE_APPLIED_TABLE_H_

#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "cluster/horizon.h"
#include "cluster/ids.h"
#include "cluster/messages.h"

namespace divvy {

// Entries that are applying or applied, by id (never by attempt). An entry is there before the first byte is written, so that a retry that comes meanwhile
// finds it. Memory: ids that the horizon has not closed; a closed one is refused before anybody looks here, so it can be forgotten. Not thread-safe.
//
//   kUnknown  --Begin-->  kApplying  --Finish-->  kApplied  --ForgetClosed-->  kUnknown
//                         kApplying  --Abandon--> kUnknown
class AppliedTable {
 public:
  enum class State : uint8_t { kUnknown, kApplying, kApplied };

  State Find(EntryId id) const;
  void Begin(const RememberedEntry& entry);  // is applying
  void Finish(EntryId id);                   // has been applied
  void Abandon(EntryId id);                  // was refused before it wrote anything: unknown again
  // Forgets closed ids that are applied. One that is still applying is kept until it is settled.
  void ForgetClosed(const Horizon& horizon);
  void Clear() { entries_.clear(); }

  std::vector<RememberedEntry> Applied() const;                                 // by id
  std::vector<RememberedEntry> Applied(absl::Span<const EntryId> query) const;  // those of the query that are, in its order
  size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    RememberedEntry entry;
    State state = State::kApplying;
  };
  std::map<EntryId, Entry> entries_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_APPLIED_TABLE_H_
