#include "base/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace divvy {
namespace internal {
namespace {

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: the checksum's change when byte b is followed by k zero bytes.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? 0x82F63B78u : 0);
    tables[0][byte] = crc;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    for (size_t k = 1; k < 8; ++k)
      tables[k][byte] = (tables[k - 1][byte] >> 8) ^ tables[0][tables[k - 1][byte] & 0xFF];
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

constexpr uint32_t Byte(char c) { return static_cast<unsigned char>(c); }

// The CRC instruction takes three cycles, but a new one can start in each cycle. So three lanes of
// this many bytes are computed in parallel.
constexpr size_t kLane = 1024;
using Shift = std::array<std::array<uint32_t, 256>, 4>;

// shift[k][b]: the state that becomes of the state b << 8k after kLane zero bytes. States are
// linear (under exclusive or), so this joins lanes.
constexpr Shift MakeShift() {
  std::array<uint32_t, 32> of_bit{};
  for (size_t bit = 0; bit < 32; ++bit) {
    uint32_t state = uint32_t{1} << bit;
    for (size_t i = 0; i < kLane; ++i) state = (state >> 8) ^ kTables[0][state & 0xFF];
    of_bit[bit] = state;
  }
  Shift shift{};
  for (size_t byte = 1; byte < 256; ++byte) {
    for (size_t k = 0; k < 4; ++k) {
      for (size_t bit = 0; bit < 8; ++bit)
        shift[k][byte] ^= (byte >> bit & 1) != 0 ? of_bit[8 * k + bit] : 0;
    }
  }
  return shift;
}

constexpr Shift kShift = MakeShift();

constexpr uint32_t AfterLane(uint32_t state) {
  return kShift[0][state & 0xFF] ^ kShift[1][(state >> 8) & 0xFF] ^
         kShift[2][(state >> 16) & 0xFF] ^ kShift[3][state >> 24];
}

}  // namespace

// Slicing by 8 (Kounavis and Berry, "A systematic approach to building high performance
// software-based CRC generators", 2005).
uint32_t ExtendCrc32cByTables(uint32_t crc, absl::string_view bytes) {
  crc = ~crc;
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 8; at += 8, left -= 8) {
    crc ^= Byte(at[0]) | Byte(at[1]) << 8 | Byte(at[2]) << 16 | Byte(at[3]) << 24;
    crc = kTables[7][crc & 0xFF] ^ kTables[6][(crc >> 8) & 0xFF] ^ kTables[5][(crc >> 16) & 0xFF] ^
          kTables[4][crc >> 24] ^ kTables[3][Byte(at[4])] ^ kTables[2][Byte(at[5])] ^
          kTables[1][Byte(at[6])] ^ kTables[0][Byte(at[7])];
  }
  for (; left > 0; ++at, --left) crc = (crc >> 8) ^ kTables[0][(crc ^ Byte(*at)) & 0xFF];
  return ~crc;
}

#if defined(__x86_64__)

bool HasCrc32cInstruction() { return __builtin_cpu_supports("sse4.2") != 0; }

namespace {

uint64_t Word(const char* at) {
  uint64_t word;
  std::memcpy(&word, at, sizeof word);
  return word;
}

// The state after three consecutive lanes.
__attribute__((target("sse4.2"))) uint64_t ExtendByLanes(uint64_t state, const char* at) {
  uint64_t second = 0, third = 0;
  for (const char* const end = at + kLane; at < end; at += 8) {
    state = _mm_crc32_u64(state, Word(at));
    second = _mm_crc32_u64(second, Word(at + kLane));
    third = _mm_crc32_u64(third, Word(at + 2 * kLane));
  }
  const uint32_t two = AfterLane(static_cast<uint32_t>(state)) ^ static_cast<uint32_t>(second);
  return AfterLane(two) ^ static_cast<uint32_t>(third);
}

}  // namespace

__attribute__((target("sse4.2"))) uint32_t ExtendCrc32cByInstruction(uint32_t crc,
                                                                     absl::string_view bytes) {
  uint64_t state = static_cast<uint32_t>(~crc);
  const char* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= 3 * kLane; at += 3 * kLane, left -= 3 * kLane) state = ExtendByLanes(state, at);
  for (; left >= 8; at += 8, left -= 8) state = _mm_crc32_u64(state, Word(at));
  uint32_t small = static_cast<uint32_t>(state);
  for (; left > 0; ++at, --left) small = _mm_crc32_u8(small, static_cast<unsigned char>(*at));
  return ~small;
}

#else

bool HasCrc32cInstruction() { return false; }
uint32_t ExtendCrc32cByInstruction(uint32_t crc, absl::string_view bytes) {
  return ExtendCrc32cByTables(crc, bytes);
}

#endif

}  // namespace internal

uint32_t ExtendCrc32c(uint32_t crc, absl::string_view bytes) {
  static const auto extend = internal::HasCrc32cInstruction() ? internal::ExtendCrc32cByInstruction
                                                              : internal::ExtendCrc32cByTables;
  return extend(crc, bytes);
}

}  // namespace divvy
