// Decompression of whole files.
#ifndef DIVVY_FORMATS_INFLATE_H_
#define DIVVY_FORMATS_INFLATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

enum class Compression { kNone, kGzip, kZlib };

// The compression of a file, detected by its first bytes and never by its name. gzip begins with 1f
// 8b 08. zlib (with a window of 32 KiB and no dictionary, as is usual) begins with 78 and then 01,
// 5e, 9c or da. Of these only 78 5e ("x^") could begin a text, so it must be followed by a byte
// that no text contains. Pure.
Compression DetectCompression(absl::string_view bytes);

// `bytes` decompressed, or `bytes` itself if DetectCompression finds no compression. A gzip file
// may have several members. Pure. DataLoss, with the offset in `bytes`: the data are damaged
// (checksums are verified) or truncated, or bytes follow the end. ResourceExhausted: the result
// would be larger than `max_bytes`, or zlib has no memory to work in.
absl::StatusOr<std::string> Inflate(std::string bytes, int64_t max_bytes);

// The limit on the decompressed size of `packed` bytes, as a guard against decompression bombs. It
// is `most`, except that a result above 1 GiB may be at most 200 times as large as `packed`. Real
// data do not compress so well. Pure.
int64_t MostUnpacked(int64_t packed, int64_t most);

}  // namespace divvy

#endif  // DIVVY_FORMATS_INFLATE_H_
