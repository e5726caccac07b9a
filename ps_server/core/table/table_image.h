// The rows of a segment as a checkpoint has them.
#ifndef DIVVY_PS_SERVER_CORE_TABLE_TABLE_IMAGE_H_
#define DIVVY_PS_SERVER_CORE_TABLE_TABLE_IMAGE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ps_server/core/table/table_segment.h"

namespace divvy {

// Rows in the order of (bucket, key), as columns. A plain value.
struct TableImage {
  std::vector<int64_t> keys, counts, ticks;
  std::vector<char> values;              // [rows] the bytes of the values, of the table's dtype
  std::vector<std::vector<char>> slots;  // [slots] the bytes of each slot of all rows
  // Keys that wait to be admitted, in the same order.
  struct Waiting {
    std::vector<int64_t> keys, counts, ticks;
  } waiting;
  // The counting Bloom filter, [buckets of the segment, filter_bytes]; empty: all zero, or there is
  // none.
  std::vector<uint8_t> filter;
  // FilterBytesOf the options of that moment.
  int64_t filter_bytes = 0;
};

// Makes room for so many rows, so that Append does not move those that are there.
void Reserve(const TableFormat& format, size_t rows, TableImage& image);

// Adds rows of the next buckets, in the order of an image. Takes long, so call it without the lock
// of the segment.
void Append(const TableFormat& format, SegmentRows rows, TableImage& image);

// Appends the rows of the segment that follows. The filters of those that have one follow each
// other too.
void Append(TableImage next, TableImage& image);

// Adds the rows of an image to a segment that has none of them. False: there is no memory.
// REQUIRES: the columns fit each other and `format`; every key's bucket is in the segment.
bool Restore(const TableImage& image, const TableFormat& format, TableSegment& segment);

}  // namespace divvy

#endif  // DIVVY_PS_SERVER_CORE_TABLE_TABLE_IMAGE_H_
