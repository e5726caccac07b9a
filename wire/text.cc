#include "wire/text.h"

#include <cstdint>

#include "absl/strings/str_cat.h"

namespace divvy::wire {
namespace {

// The first byte of a character of 2 to 4 bytes says how many, and together with the second what is overlong, a surrogate or beyond U+10FFFF
// (The Unicode Standard, table 3-7).
struct Lead {
  uint8_t first, last;  // first bytes of this row
  uint8_t low, high;    // the second byte's range
  size_t bytes;
};
constexpr Lead kLeads[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3},
    {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

uint8_t Byte(absl::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

bool Fits(const Lead& lead, absl::string_view text) {
  if (text.size() < lead.bytes || Byte(text, 1) < lead.low || Byte(text, 1) > lead.high) return false;
  for (size_t i = 2; i < lead.bytes; ++i) {
    if ((Byte(text, i) & 0xc0) != 0x80) return false;
  }
  return true;
}

// Bytes of the character at the front; 0: there is none. REQUIRES: text is not empty.
size_t CharacterBytes(absl::string_view text) {
  const uint8_t first = Byte(text, 0);
  if (first < 0x80) return 1;
  for (const Lead& lead : kLeads) {
    if (first >= lead.first && first <= lead.last) return Fits(lead, text) ? lead.bytes : 0;
  }
  return 0;
}

bool IsControl(uint8_t byte) { return byte < 0x20 || byte == 0x7f; }

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

std::string Escaped(absl::string_view text, size_t max_bytes) {
  std::string out;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const bool plain = bytes > 0 && !IsControl(Byte(text, 0));
    const absl::string_view character = text.substr(0, plain ? bytes : 1);
    const std::string shown = plain ? std::string(character) : absl::StrCat("\\x", absl::Hex(Byte(text, 0), absl::kZeroPad2));
    if (out.size() + shown.size() > max_bytes) break;
    out += shown;
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace divvy::wire
