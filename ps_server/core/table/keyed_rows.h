// Rows that are found by their key.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_KEYED_ROWS_H_
#define DIVVY_PS_SERVER_CORE_TABLE_KEYED_ROWS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "ps_server/core/table/key_index.h"
#include "ps_server/core/table/row_slabs.h"
#include "variables/table_keys.h"

namespace divvy {

// A key of a request, and its MixKey.
struct TableKey {
  int64_t key = 0;
  uint64_t mixed = 0;
};

// Those of `keys`, which come in TableOrder, that lie in buckets [first, end).
inline absl::Span<const TableKey> KeysWithin(absl::Span<const TableKey> keys, int64_t first,
                                             int64_t end) {
  const auto is_before = [](const TableKey& key, int64_t bucket) {
    return BucketOf(key.mixed) < bucket;
  };
  const auto from = std::lower_bound(keys.begin(), keys.end(), first, is_before),
             to = std::lower_bound(from, keys.end(), end, is_before);
  return absl::MakeConstSpan(from, to);
}

// The rows of a table, or the counts that wait to become rows, with their index. Not thread-safe.
class KeyedRows {
 public:
  static constexpr uint32_t kNoRow = RowSlabs::kNoRow;

  // As RowSlabs and KeyIndex.
  KeyedRows(int64_t row_bytes, int64_t first_bucket, int64_t end_bucket,
            std::shared_ptr<TableMemory> memory)
      : slabs_(row_bytes, std::move(memory)), index_(first_bucket, end_bucket) {}

  // kNoRow: the key has no row.
  uint32_t Find(const TableKey& key) const {
    return index_.Find(key.mixed, [&](uint32_t row) { return slabs_.head(row).key == key.key; });
  }
  // Before many keys are added bucket by bucket: KeyIndex::Reserve.
  void Reserve(size_t more) { index_.Reserve(index_.size() + more); }
  // A row with the key in its head; the bytes behind the head are undefined. kNoRow: there is no
  // memory. REQUIRES: the key has no row.
  uint32_t Add(const TableKey& key) {
    const uint32_t row = slabs_.Take();
    if (row == kNoRow) return kNoRow;
    slabs_.head(row).key = key.key;
    index_.Insert(key.mixed, row);
    return row;
  }
  void Remove(uint32_t row) {
    index_.Erase(MixKey(slabs_.head(row).key), row);
    slabs_.Free(row);
  }
  // Calls visit(row) for every row of buckets [first, end), and reads no other rows. `visit` may
  // remove that row. Their memory is in no cache, so the first `bytes` of each are loaded ahead.
  template <typename Visit>
  void ForEach(int64_t first, int64_t end, int64_t bytes, const Visit& visit) const {
    constexpr size_t kAhead = 12;
    const std::vector<uint32_t> rows = index_.RowsOf(first, end);
    for (size_t i = 0; i < rows.size(); ++i) {
      if (i + kAhead < rows.size()) Prefetch(rows[i + kAhead], bytes);
      visit(rows[i]);
    }
  }
  // Begins to load the first `bytes` of a row, or most of them if it is long.
  void Prefetch(uint32_t row, int64_t bytes) const {
    constexpr int64_t kLine = 64, kMostBytes = 16 * kLine;
    const char* const at = slabs_.at(row);
    for (int64_t i = 0; i < std::min(bytes, kMostBytes); i += kLine) __builtin_prefetch(at + i);
  }

  RowHead& head(uint32_t row) { return slabs_.head(row); }
  const RowHead& head(uint32_t row) const { return slabs_.head(row); }
  char* at(uint32_t row) const { return slabs_.at(row); }
  const RowSlabs& slabs() const { return slabs_; }
  const KeyIndex& index() const { return index_; }
  int64_t bytes() const { return slabs_.bytes() + index_.bytes(); }

 private:
  RowSlabs slabs_;
  KeyIndex index_;
};

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_KEYED_ROWS_H_
