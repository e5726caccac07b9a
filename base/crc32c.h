// CRC-32C (Castagnoli; reflected polynomial 0x82F63B78, as in iSCSI, RFC 3720): the checksum of
// TFRecord files, of tensor bundles and of our own files. The check value, that of "123456789", is
// 0xE3069283. Uses the processor's instruction where it has one; the same value everywhere.
#ifndef DIVVY_BASE_CRC32C_H_
#define DIVVY_BASE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace divvy {

// The checksum of what has the checksum `crc`, followed by `bytes`. That of nothing is 0.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes);

inline uint32_t Crc32c(absl::string_view bytes) { return ExtendCrc32c(0, bytes); }

// As checksums are stored among the bytes they protect: the checksum of bytes that hold their own
// is no good one (LevelDB's doc/log_format.md; TFRecord).
constexpr uint32_t MaskCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }
constexpr uint32_t UnmaskCrc32c(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8u;
  return (rotated >> 17) | (rotated << 15);
}

namespace internal {

// The two ways, for the test that compares them.
uint32_t ExtendCrc32cByTables(uint32_t crc, absl::string_view bytes);
bool HasCrc32cInstruction();
// REQUIRES: HasCrc32cInstruction()
uint32_t ExtendCrc32cByInstruction(uint32_t crc, absl::string_view bytes);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_BASE_CRC32C_H_
