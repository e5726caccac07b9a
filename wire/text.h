// Checks and escapes of text from, or for, another process.
#ifndef DIVVY_WIRE_TEXT_H_
#define DIVVY_WIRE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace divvy::wire {

// The longest text of a status.
constexpr size_t kMaxTextBytes = 8 << 10;
// The longest name or address. Names have at least one byte.
constexpr size_t kMaxNameBytes = 1 << 10;

// Both are pure and thread-safe.

// Whether `text` is well-formed UTF-8 (The Unicode Standard, table 3-7: no overlong forms, no
// surrogates). protobuf refuses a whole message for one bad byte in a field of type string.
bool IsUtf8(absl::string_view text);

// Returns `text` in a form that is safe for a log line, a terminal or a protobuf string. Control
// characters, line separators, characters that change the writing direction, and bytes that are not
// UTF-8 become "\x1b", byte by byte. Text beyond `max_bytes` is cut off, never within a character.
// Escaping twice gives the same as escaping once.
std::string Escaped(absl::string_view text, size_t max_bytes = kMaxTextBytes);

}  // namespace divvy::wire

#endif  // DIVVY_WIRE_TEXT_H_
