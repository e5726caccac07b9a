// The index of a table's keys.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_KEY_INDEX_H_
#define DIVVY_PS_SERVER_CORE_TABLE_KEY_INDEX_H_

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "variables/table_keys.h"

namespace divvy {

// Open addressing with linear probing, without tombstones: an erased place is filled by the entries
// behind it. An entry has 8 bytes: the row's number, and a tag of 32 bits that tells where a key
// lies in TableOrder. Entries lie about in that order, so the rows of some buckets are a run of the
// index, keys that a request names in that order are found side by side, and an index that grows is
// copied from its begin to its end. The key itself lies in the row, so the caller compares it
// there. Growing reads the index alone. Not thread-safe.
class KeyIndex {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  // Of keys in buckets [first_bucket, end_bucket). REQUIRES: first_bucket < end_bucket.
  KeyIndex(int64_t first_bucket, int64_t end_bucket)
      : first_bucket_(first_bucket),
        tags_of_bucket_((uint64_t{1} << 32) / static_cast<uint64_t>(end_bucket - first_bucket)) {}

  // The row whose mixed key is `mixed` (MixKey), or kNone. `is_key(row)` says whether the row has
  // the key.
  template <typename IsKey>
  uint32_t Find(uint64_t mixed, const IsKey& is_key) const {
    if (entries_.empty()) return kNone;
    const uint32_t tag = TagOf(mixed);
    for (size_t at = HomeOf(tag); entries_[at].row != kNone; at = Behind(at)) {
      if (entries_[at].tag == tag && is_key(entries_[at].row)) return entries_[at].row;
    }
    return kNone;
  }
  // Begins to load the entries of a key.
  void Prefetch(uint64_t mixed) const {
    if (!entries_.empty()) __builtin_prefetch(&entries_[HomeOf(TagOf(mixed))]);
  }
  // A row that may have this key, without comparing it; kNone: there is none. For prefetching.
  uint32_t Guess(uint64_t mixed) const {
    return Find(mixed, [](uint32_t) { return true; });
  }
  // The rows of the keys in buckets [first, end), in no order. Reads only their run of the index.
  // REQUIRES: first and end are between the bounds of the index.
  std::vector<uint32_t> RowsOf(int64_t first, int64_t end) const {
    std::vector<uint32_t> rows;
    ForEachIn(first, end, [&](uint32_t row) { rows.push_back(row); });
    return rows;
  }
  // How many rows RowsOf would give.
  int64_t CountOf(int64_t first, int64_t end) const {
    int64_t count = 0;
    ForEachIn(first, end, [&](uint32_t) { ++count; });
    return count;
  }

  // Makes room for so many keys in all, and for a tenth more. Keys that come bucket by bucket are
  // best inserted after it: otherwise the first of them lie side by side in a small part of the
  // index.
  void Reserve(size_t keys) {
    if (keys * 6 > entries_.size() * 5) Resize(std::max(kSmallest, keys * 4 / 3));
  }
  // Returns how many places it has looked at. REQUIRES: the key is not in the index; row != kNone.
  size_t Insert(uint64_t mixed, uint32_t row) {
    if ((size_ + 1) * 6 > entries_.size() * 5) Grow();
    const size_t looked = Put({TagOf(mixed), row});
    ++size_;
    // Such a search tells that keys come bucket by bucket, and that others will follow. An index
    // that is nearly unused does not grow for it: its keys may all be of one bucket.
    if (looked > kLongSearch && size_ * kMostUnused > entries_.size()) Grow();
    return looked;
  }
  // REQUIRES: the key is in the index, with this row.
  void Erase(uint64_t mixed, uint32_t row) {
    size_t hole = HomeOf(TagOf(mixed));
    while (entries_[hole].row != row) {
      assert(entries_[hole].row != kNone);
      hole = Behind(hole);
    }
    for (size_t at = Behind(hole); entries_[at].row != kNone; at = Behind(at)) {
      // An entry may not come to lie before its home.
      if (Distance(HomeOf(entries_[at].tag), at) < Distance(hole, at)) continue;
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole] = Entry();
    --size_;
  }

  size_t size() const { return size_; }
  int64_t bytes() const { return static_cast<int64_t>(entries_.size() * sizeof(Entry)); }

 private:
  struct Entry {
    uint32_t tag = 0, row = kNone;
  };
  // Buckets have equal shares of the tags. Within its share, a key lies where its upper bits say.
  uint32_t TagOf(uint64_t mixed) const {
    const auto bucket = static_cast<uint64_t>(BucketOf(mixed) - first_bucket_);
    return static_cast<uint32_t>(bucket * tags_of_bucket_ +
                                 ((mixed >> 32) * tags_of_bucket_ >> 32));
  }
  template <typename Visit>
  void ForEachIn(int64_t first, int64_t end, const Visit& visit) const {
    if (entries_.empty() || first >= end) return;
    const uint64_t first_tag = static_cast<uint64_t>(first - first_bucket_) * tags_of_bucket_,
                   end_tag = static_cast<uint64_t>(end - first_bucket_) * tags_of_bucket_;
    const auto last_tag = static_cast<uint32_t>(end_tag - 1);
    // Behind the home of the last tag, entries may have moved on to the next place that is unused.
    const size_t least = HomeOf(last_tag) - HomeOf(static_cast<uint32_t>(first_tag)) + 1;
    size_t at = HomeOf(static_cast<uint32_t>(first_tag));
    for (size_t seen = 0; seen < entries_.size(); ++seen, at = Behind(at)) {
      const Entry& entry = entries_[at];
      if (entry.row == kNone && seen >= least) return;
      if (entry.row != kNone && entry.tag >= first_tag && entry.tag <= last_tag) visit(entry.row);
    }
  }

  // Tags spread over the entries in their order, so the number of entries may be any.
  size_t HomeOf(uint32_t tag) const { return (uint64_t{tag} * entries_.size()) >> 32; }
  size_t Behind(size_t at) const { return at + 1 == entries_.size() ? 0 : at + 1; }
  size_t Distance(size_t from, size_t to) const {
    return to >= from ? to - from : to + entries_.size() - from;
  }
  size_t Put(Entry entry) {
    const size_t home = HomeOf(entry.tag);
    return Distance(home, PutFrom(home, entry)) + 1;
  }
  // Returns the place.
  size_t PutFrom(size_t at, Entry entry) {
    while (entries_[at].row != kNone) at = Behind(at);
    entries_[at] = entry;
    return at;
  }
  // By a quarter, so that few entries are unused.
  void Grow() { Resize(std::max(kSmallest, entries_.size() + entries_.size() / 4)); }
  // One pass, because the entries lie about in the order of their homes. Those before the first
  // unused place may have come from the end of the index.
  void Resize(size_t entries) {
    const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(entries));
    const auto is_unused = [](const Entry& entry) { return entry.row == kNone; };
    const auto begin = std::find_if(old.begin(), old.end(), is_unused);
    size_t last_home = 0, next = 0;
    const auto put = [&](const Entry& entry) {
      if (is_unused(entry)) return;
      const size_t home = HomeOf(entry.tag);
      // All places from the home before to `next` are used.
      const bool is_behind = home >= last_home;
      const size_t at = PutFrom(is_behind ? std::max(home, next) : home, entry);
      if (is_behind) last_home = home, next = Behind(at);
    };
    std::for_each(begin, old.end(), put);
    std::for_each(old.begin(), begin, put);
  }

  static constexpr size_t kSmallest = 16;
  // Keys in any order need so long a search in one of some ten thousand inserts into a full index.
  static constexpr size_t kLongSearch = 512, kMostUnused = 8;
  const int64_t first_bucket_;
  const uint64_t tags_of_bucket_;
  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_KEY_INDEX_H_
