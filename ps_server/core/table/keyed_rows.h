// Rows that are found by their key.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_KEYED_ROWS_H_
#define DIVVY_PS_SERVER_CORE_TABLE_KEYED_ROWS_H_

#include <cstdint>

#include "ps_server/core/table/key_index.h"
#include "ps_server/core/table/row_slabs.h"
#include "variables/table_keys.h"

namespace divvy {

// A key of a request, and its MixKey.
struct TableKey {
  int64_t key = 0;
  uint64_t mixed = 0;
};

// The rows of a table, or the counts that wait to become rows, with their index. Not thread-safe.
class KeyedRows {
 public:
  static constexpr uint32_t kNoRow = RowSlabs::kNoRow;

  // As RowSlabs.
  explicit KeyedRows(int64_t row_bytes) : slabs_(row_bytes) {}

  // kNoRow: the key has no row.
  uint32_t Find(const TableKey& key) const {
    return index_.Find(key.mixed, [&](uint32_t row) { return slabs_.head(row).key == key.key; });
  }
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
  // Calls visit(row, mixed key) for every row. `visit` may remove that row.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    for (uint32_t row = 0; row < slabs_.end(); ++row) {
      if (!slabs_.is_free(row)) visit(row, MixKey(slabs_.head(row).key));
    }
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
