// LevelDB's table, the file that holds the index of a tensor bundle: keys with their values, sorted
// by the bytes of the keys.
//
//   table  = block* meta index footer
//   block  = entry* restart* count, a byte that says how these are compressed (0 not at all, 1
//   Snappy), and the masked CRC-32C of all that entry  = three varints (bytes of the key that it
//   shares with the one before, further bytes of the key, bytes of the value), then those bytes
//   footer = the places of the meta block and of the index, each two varints (offset, size), filled
//   up with zeros to 40 bytes, and the number that says "table"
//
// The index has one entry for each block: a key not below its last one, and its place. (LevelDB's
// doc/table_format.md.)
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

// Pure and total: any bytes. Takes no more memory than a small multiple of the bytes that it is
// given, whatever these claim. DataLoss, with the offset: not a table, cut off, a checksum that
// does not fit, or keys that do not rise. Not every flipped bit is found: the zeros of the footer
// have no checksum. Who has written the table himself finds the rest by writing the entries again.
absl::StatusOr<std::vector<TableEntry>> ReadSortedTable(absl::string_view bytes);

// The inverse, by LevelDB's own builder; the same bytes that TensorFlow makes of these entries
// (blocks of 256 KiB, every 16th key written out). REQUIRES: the keys rise strictly.
std::string WriteSortedTable(absl::Span<const TableEntry> entries,
                             TableCompression compression = TableCompression::kNone);

}  // namespace divvy

#endif  // DIVVY_FORMATS_SORTED_TABLE_H_
