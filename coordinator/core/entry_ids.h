// The ids of entries (steps and writes): which are given, which are durable, and which the servers
// know of.
#ifndef DIVVY_COORDINATOR_CORE_ENTRY_IDS_H_
#define DIVVY_COORDINATOR_CORE_ENTRY_IDS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "cluster/ids.h"

namespace divvy {

// Ids are made durable in blocks before they are given, so that no life of the coordinator gives an
// id of another. They are told to the servers by Sync: a server remembers what may still come.
// Pure; not thread-safe.
class EntryIds {
 public:
  // How far ids run ahead of the horizon that the slowest ps has acknowledged. This bounds what a
  // ps must remember.
  static constexpr uint64_t kMaxAhead = 32'768;
  // A Sync goes out after so many ids: a quarter of kMaxAhead, so that giving ids never waits for a
  // healthy ps.
  static constexpr uint64_t kSyncAfter = 8'192;

  // The first block of `block` ids begins at `first`.
  EntryIds(uint64_t first, uint64_t block)
      : next_(first), durable_end_(first + block), acked_(first), synced_(first), block_(block) {}

  // The id that is given next.
  EntryId next() const { return EntryId(next_); }
  // REQUIRES: MayGive().
  EntryId Give() { return EntryId(next_++); }
  bool MayGive() const { return !IsTooFarAhead(next()) && next_ < durable_end_; }
  // Whether a server might have to remember too much if this entry began now.
  bool IsTooFarAhead(EntryId id) const { return id.value() - acked_ >= kMaxAhead; }

  // True, once for each block: the next block is to be made durable, and BlockStored told its end.
  bool WantsBlock() {
    if (is_storing_ || durable_end_ - next_ >= block_ / 2) return false;
    is_storing_ = true;
    return true;
  }
  void BlockStored(uint64_t end) { durable_end_ = end, is_storing_ = false; }

  // Whether the servers should be told, when all entries below `next` have begun.
  bool NeedsSync(EntryId next) const { return next.value() - synced_ >= kSyncAfter; }
  // Sync number `seq` says that all below `next` have begun.
  void Synced(uint64_t seq, EntryId next) { at_sync_[seq] = synced_ = next.value(); }
  // Every ps has acknowledged Sync number `seq`.
  void Acked(uint64_t seq) {
    for (auto told = at_sync_.begin(); told != at_sync_.end() && told->first <= seq;
         told = at_sync_.erase(told))
      acked_ = told->second;
  }
  // The servers go back to a state in which nothing from `next` on has begun.
  void Rewind(EntryId next) {
    at_sync_.clear();
    acked_ = synced_ = next.value();
  }

  size_t num_syncs() const { return at_sync_.size(); }

 private:
  uint64_t next_;
  uint64_t durable_end_;  // ids below are stored as given
  uint64_t acked_;        // the next id that every ps has acknowledged
  uint64_t synced_;       // the next id in the last Sync that was sent
  const uint64_t block_;
  bool is_storing_ = false;
  std::map<uint64_t, uint64_t> at_sync_;  // Sync number -> the next id that it told
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_ENTRY_IDS_H_
