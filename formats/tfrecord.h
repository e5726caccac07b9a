// TFRecord files: a sequence of records, which are any bytes.
//
//   record = length (uint64) masked-crc(length) (uint32) data masked-crc(data) (uint32)
//
// Integers are little-endian; the checksums are those of base/crc32c.h. A file has neither a header
// nor an end mark, so a file that was truncated between two records looks whole. Compression
// applies to the whole file (formats/inflate.h).
#ifndef DIVVY_FORMATS_TFRECORD_H_
#define DIVVY_FORMATS_TFRECORD_H_

#include <cstddef>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// The record at `offset` of `file`, whose memory it borrows. Moves `offset` past it. nullopt: the
// end of the file. Pure.
//
// DataLoss, with the offset: a wrong checksum, or a truncated record. If only the data are damaged,
// `offset` is then past this record, so the caller may continue. Otherwise it is at the end of the
// file, because without a valid length the next record cannot be found.
absl::StatusOr<std::optional<absl::string_view>> ReadTfRecord(absl::string_view file,
                                                              size_t& offset);

// Whether `file` begins with a valid record header. A caller needs it because the first bytes of a
// TFRecord file, a length, may look like those of a compressed file.
bool BeginsTfRecord(absl::string_view file);

// Appends a record to `file`.
void AppendTfRecord(absl::string_view record, std::string& file);

}  // namespace divvy

#endif  // DIVVY_FORMATS_TFRECORD_H_
