// LevelDB's table format, which the index of a tensor bundle uses: keys with their values, sorted
// by the bytes of the keys.
//
//   table  = block* meta index footer
//   block  = entry* restart* count compression checksum
//            compression: one byte; 0 none, 1 Snappy
//            checksum: the masked CRC-32C of everything before it in the block
//   entry  = three varints (number of bytes that the key shares with the key before it, number of
//            further bytes of the key, number of bytes of the value), then those bytes
//   footer = the places of the meta block and of the index, each two varints (offset, size), padded
//            with zeros to 40 bytes, and the magic number of a table
//
// The index has one entry for each block: a key that is not below the block's last key, and the
// block's place. (LevelDB's doc/table_format.md.)
#ifndef DIVVY_FORMATS_SORTED_TABLE_H_
#define DIVVY_FORMATS_SORTED_TABLE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace divvy {

struct TableEntry {
  std::string key;
  std::string value;
};

enum class TableCompression { kNone, kSnappy };

// Decodes a table. Pure; any bytes may be given. Memory is bounded by a small multiple of the size
// of `bytes`, whatever they claim. DataLoss, with the offset: not a table, truncated, a wrong
// checksum, or keys that do not rise. Not every flipped bit is detected, since the padding of the
// footer has no checksum. A caller that wrote the table can detect the rest by writing the entries
// again and comparing the bytes.
absl::StatusOr<std::vector<TableEntry>> ReadSortedTable(absl::string_view bytes);

// The inverse of ReadSortedTable, by LevelDB's own builder. The bytes are those that TensorFlow
// makes of these entries (blocks of 256 KiB, every 16th key written in full). REQUIRES: the keys
// rise strictly.
std::string WriteSortedTable(absl::Span<const TableEntry> entries,
                             TableCompression compression = TableCompression::kNone);

}  // namespace divvy

#endif  // DIVVY_FORMATS_SORTED_TABLE_H_
