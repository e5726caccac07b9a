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

namespace divvy {

// Open addressing with linear probing, without tombstones: an erased place is filled by the entries
// behind it. An entry has 8 bytes: the row's number, and 32 bits of the mixed key (MixKey). The key
// itself lies in the row, so the caller compares it there. Growing reads the index alone. Not
// thread-safe.
class KeyIndex {
 public:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

  // The row whose mixed key is `mixed`, or kNone. `is_key(row)` says whether the row has the key.
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

  // REQUIRES: the key is not in the index; row != kNone.
  void Insert(uint64_t mixed, uint32_t row) {
    if ((size_ + 1) * 6 > entries_.size() * 5) Grow();
    Put({TagOf(mixed), row});
    ++size_;
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
  // The lowest 16 bits of a mixed key are its bucket, so many keys of an index share them.
  static uint32_t TagOf(uint64_t mixed) { return static_cast<uint32_t>(mixed >> 16); }

  // Tags spread over the entries in their order, so the number of entries may be any.
  size_t HomeOf(uint32_t tag) const { return (uint64_t{tag} * entries_.size()) >> 32; }
  size_t Behind(size_t at) const { return at + 1 == entries_.size() ? 0 : at + 1; }
  size_t Distance(size_t from, size_t to) const {
    return to >= from ? to - from : to + entries_.size() - from;
  }
  void Put(Entry entry) {
    size_t at = HomeOf(entry.tag);
    while (entries_[at].row != kNone) at = Behind(at);
    entries_[at] = entry;
  }
  // By a quarter, so that few entries are unused.
  void Grow() {
    const std::vector<Entry> old = std::exchange(
        entries_, std::vector<Entry>(std::max(kSmallest, entries_.size() + entries_.size() / 4)));
    for (const Entry& entry : old) {
      if (entry.row != kNone) Put(entry);
    }
  }

  static constexpr size_t kSmallest = 16;
  std::vector<Entry> entries_;
  size_t size_ = 0;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_KEY_INDEX_H_
