// Text that came from, or goes to, another process.
#ifndef DIVVY_WIRE_TEXT_H_
#define DIVVY_WIRE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace divvy::wire {

// Of a status' text.
constexpr size_t kMaxTextBytes = 8 << 10;
// Of names and addresses, which also have at least one byte.
constexpr size_t kMaxNameBytes = 1 << 10;

// Both are pure and thread-safe.

// Whether `text` is well-formed UTF-8 (The Unicode Standard, table 3-7: nothing overlong, no
// surrogates). protobuf refuses a whole message for one bad byte in a field of type string.
bool IsUtf8(absl::string_view text);

// `text` as it may stand in a log line, a terminal or a protobuf string: control characters,
// separators of lines, characters that turn the direction of writing, and bytes that are no UTF-8
// become "\x1b" (each of their bytes), and what is beyond `max_bytes` is cut off, never within a
// character. Escaping twice changes nothing more.
std::string Escaped(absl::string_view text, size_t max_bytes = kMaxTextBytes);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_TEXT_H_
