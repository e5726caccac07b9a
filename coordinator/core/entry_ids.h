// Gives ids to entries (steps and writes), and tracks which ids are durable and which the servers
// know of.
#ifndef DIVVY_COORDINATOR_CORE_ENTRY_IDS_H_
#define DIVVY_COORDINATOR_CORE_ENTRY_IDS_H_

#include <cstddef>
#include <cstdint>
#include <map>

#include "protocol/ids.h"

namespace divvy {

// Ids are made durable in blocks before they are given, so no two lives of the coordinator give the
// same id. Sync tells the servers how far ids have been given, because a server must remember which
// entries may still arrive. Pure; not thread-safe.
class EntryIds {
 public:
  // How far ids may run ahead of the horizon that the slowest ps has acknowledged. This bounds what
  // a ps must remember.
  static constexpr uint64_t kMaxAhead = 32'768;
  // A Sync is sent after so many ids. The number is a quarter of kMaxAhead, so that a healthy ps
  // never delays an id.
  static constexpr uint64_t kSyncAfter = 8'192;

  // The first block begins at `first` and has `block` ids. REQUIRES: it is durable before the first
  // Give.
  EntryIds(uint64_t first, uint64_t block)
      : next_(first), durable_end_(first + block), acked_(first), synced_(first), block_(block) {}

  // The id that Give will return.
  EntryId next() const { return EntryId(next_); }
  // REQUIRES: MayGive().
  EntryId Give() { return EntryId(next_++); }
  // Whether the next id is durable and not too far ahead. If not, wait for BlockStored or Acked.
  bool MayGive() const { return !IsTooFarAhead(next()) && next_ < durable_end_; }
  // Whether a server might have to remember too much if this entry began now.
  bool IsTooFarAhead(EntryId id) const { return id.value() - acked_ >= kMaxAhead; }

  // True, once for each block: the caller must make the next block durable and then call
  // BlockStored with its end.
  bool WantsBlock() {
    if (is_storing_ || durable_end_ - next_ >= block_ / 2) return false;
    is_storing_ = true;
    return true;
  }
  void BlockStored(uint64_t end) { durable_end_ = end, is_storing_ = false; }

  // Whether the servers should get a Sync. `next`: all entries below it have begun.
  bool NeedsSync(EntryId next) const { return next.value() - synced_ >= kSyncAfter; }
  // Sync number `seq` was sent. It says that all entries below `next` have begun.
  void Synced(uint64_t seq, EntryId next) { at_sync_[seq] = synced_ = next.value(); }
  // Every ps has acknowledged Sync number `seq`.
  void Acked(uint64_t seq) {
    for (auto told = at_sync_.begin(); told != at_sync_.end() && told->first <= seq;
         told = at_sync_.erase(told))
      acked_ = told->second;
  }
  // The servers return to a state in which no entry from `next` on has begun.
  void Rewind(EntryId next) {
    at_sync_.clear();
    acked_ = synced_ = next.value();
  }

  // Syncs that not every ps has acknowledged.
  size_t num_syncs() const { return at_sync_.size(); }

 private:
  uint64_t next_;
  // Ids below this are stored as given.
  uint64_t durable_end_;
  // The next id in the last Sync that every ps has acknowledged.
  uint64_t acked_;
  // The next id in the last Sync that was sent.
  uint64_t synced_;
  const uint64_t block_;
  bool is_storing_ = false;
  // Sync number -> the next id that this Sync contained.
  std::map<uint64_t, uint64_t> at_sync_;
};

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_ENTRY_IDS_H_
