// CRC-32C (Castagnoli; reflected polynomial 0x82F63B78, as in iSCSI, RFC 3720): the checksum of
// TFRecord files, of tensor bundles and of Divvy's own files. The checksum of "123456789" is
// 0xE3069283. Uses the processor's instruction if there is one; the result is the same everywhere.
// All functions are pure.
#ifndef DIVVY_BASE_CRC32C_H_
#define DIVVY_BASE_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace divvy {

// The checksum of `a` followed by `bytes`, where `crc` is the checksum of `a`. The checksum of an
// empty `a` is 0.
uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes);

inline uint32_t Crc32c(absl::string_view bytes) { return ExtendCrc32c(0, bytes); }

// Maps a checksum to the form in which files store it, and back. A checksum over bytes that contain
// a plain checksum is weak, so stored checksums are masked (LevelDB's doc/log_format.md; TFRecord).
constexpr uint32_t MaskCrc32c(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }
constexpr uint32_t UnmaskCrc32c(uint32_t masked) {
  const uint32_t rotated = masked - 0xA282EAD8u;
  return (rotated >> 17) | (rotated << 15);
}

namespace internal {

// The two implementations, for the test that compares them.
uint32_t ExtendCrc32cByTables(uint32_t crc, absl::string_view bytes);
bool HasCrc32cInstruction();
// REQUIRES: HasCrc32cInstruction()
uint32_t ExtendCrc32cByInstruction(uint32_t crc, absl::string_view bytes);

}  // namespace internal
}  // namespace divvy

#endif  // DIVVY_BASE_CRC32C_H_
