// TFRecord files: records of bytes, one behind another.
//
//   record = length (uint64) masked-crc(length) (uint32) data masked-crc(data) (uint32)
//
// Integers are little-endian; the checksums are those of base/crc32c.h. There is no head and no end
// mark: a file is cut off between two records or it is damaged. Compression is of the whole file
// (formats/inflate.h).
#ifndef DIVVY_FORMATS_TFRECORD_H_
#define DIVVY_FORMATS_TFRECORD_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// The record at `offset` of `file`, whose memory it borrows, and moves `offset` behind it. nullopt:
// nothing is left. Pure.
// DataLoss, with the offset: a checksum that does not fit, or a record that is cut off. `offset` is
// then behind a record whose data alone are damaged, else at the end of the file: without its
// length nobody knows where the next begins.
absl::StatusOr<std::optional<absl::string_view>> ReadTfRecord(absl::string_view file,
                                                              size_t& offset);

// Whether `file` begins with the head of a record: its first bytes, a length, may look like those
// of a compressed file.
bool BeginsTfRecord(absl::string_view file);

// Adds a record to the end of `file`.
void AppendTfRecord(absl::string_view record, std::string& file);

}  // namespace divvy

#endif  // DIVVY_FORMATS_TFRECORD_H_
