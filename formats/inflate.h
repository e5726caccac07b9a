// Decompression of whole files.
#ifndef DIVVY_FORMATS_INFLATE_H_
#define DIVVY_FORMATS_INFLATE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

enum class Compression { kNone, kGzip, kZlib };

// Told by the first bytes, never by a name: gzip begins with 1f 8b 08, zlib (window of 32 KiB, no
// dictionary: what everybody writes) with 78 and 01, 5e, 9c or da. Of these only "x^" could begin a
// text, so it must be followed by a byte that no text has.
Compression DetectCompression(absl::string_view bytes);

// `bytes` decompressed, or `bytes` itself if DetectCompression sees no compression. A gzip file may
// have several members. Pure. DataLoss, with the offset in `bytes`: damaged data (checksums are
// verified), data that end too early, bytes behind the end. ResourceExhausted: the result would be
// larger than `max_bytes`, or zlib has no memory to work in.
absl::StatusOr<std::string> Inflate(std::string bytes, int64_t max_bytes);

// What `packed` bytes may have decompressed, where `most` may be had at all: above 1 GiB no more
// than 200 times as many. Data are not so; a bomb is. Pure.
int64_t MostUnpacked(int64_t packed, int64_t most);

}  // namespace divvy

#endif  // DIVVY_FORMATS_INFLATE_H_
