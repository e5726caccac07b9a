// Little-endian numbers in files, independent of this machine's byte order.
#ifndef DIVVY_FORMATS_LITTLE_ENDIAN_H_
#define DIVVY_FORMATS_LITTLE_ENDIAN_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "absl/strings/string_view.h"

namespace divvy {

namespace little_endian_internal {
template <typename T>
using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
}  // namespace little_endian_internal

// T below: uint32_t, uint64_t, float or double. Pure.
//
//   std::string bytes;
//   AppendLittleEndian<uint32_t>(1, bytes);          // 01 00 00 00
//   LoadLittleEndian<uint32_t>(bytes) == 1

// The number at the beginning of `bytes`. REQUIRES: bytes.size() >= sizeof(T).
template <typename T>
T LoadLittleEndian(absl::string_view bytes) {
  using Bits = little_endian_internal::Bits<T>;
  Bits bits = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    bits |= static_cast<Bits>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  T value;
  static_assert(sizeof value == sizeof bits);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Appends `value` to `out`: sizeof(T) bytes.
template <typename T>
void AppendLittleEndian(T value, std::string& out) {
  little_endian_internal::Bits<T> bits;
  static_assert(sizeof value == sizeof bits);
  std::memcpy(&bits, &value, sizeof value);
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<char>(bits >> (8 * i)));
}

}  // namespace divvy

#endif  // DIVVY_FORMATS_LITTLE_ENDIAN_H_
