#include "wire/text.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace divvy::wire {
namespace {

// The first byte of a character of 2 to 4 bytes tells its length. Together with the second byte it
// tells whether the character is overlong, a surrogate, or beyond U+10FFFF (The Unicode Standard,
// table 3-7).
struct Lead {
  // the first bytes of this row
  uint8_t first, last;
  // the range of the second byte
  uint8_t low, high;
  size_t bytes;
};
constexpr Lead kLeads[] = {
    {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
    {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4},
    {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
};

uint8_t Byte(absl::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

bool Fits(const Lead& lead, absl::string_view text) {
  if (text.size() < lead.bytes || Byte(text, 1) < lead.low || Byte(text, 1) > lead.high)
    return false;
  for (size_t i = 2; i < lead.bytes; ++i) {
    if ((Byte(text, i) & 0xc0) != 0x80) return false;
  }
  return true;
}

// The number of bytes of the first character; 0 if it is malformed. REQUIRES: text is not empty.
size_t CharacterBytes(absl::string_view text) {
  const uint8_t first = Byte(text, 0);
  if (first < 0x80) return 1;
  for (const Lead& lead : kLeads) {
    if (first >= lead.first && first <= lead.last) return Fits(lead, text) ? lead.bytes : 0;
  }
  return 0;
}

// REQUIRES: `character` is one complete character.
char32_t CodePoint(absl::string_view character) {
  if (character.size() == 1) return Byte(character, 0);
  char32_t code = Byte(character, 0) & (0x7f >> character.size());
  for (size_t i = 1; i < character.size(); ++i) code = (code << 6) | (Byte(character, i) & 0x3f);
  return code;
}

// Whether a character changes how a terminal or a reader interprets the text around it. These are
// control characters (U+009B begins a terminal command, as ESC [ does), separators of lines and
// paragraphs, and invisible characters that change the writing direction (The Unicode Standard,
// general categories Cc, Zl, Zp and Cf).
bool IsControl(char32_t code) {
  struct Range {
    char32_t first, last;
  };
  constexpr Range kRanges[] = {{0x00, 0x1f},       {0x7f, 0x9f},       {0xad, 0xad},
                               {0x600, 0x605},     {0x61c, 0x61c},     {0x6dd, 0x6dd},
                               {0x70f, 0x70f},     {0x890, 0x891},     {0x8e2, 0x8e2},
                               {0x180e, 0x180e},   {0x200b, 0x200f},   {0x2028, 0x202e},
                               {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},
                               {0x110bd, 0x110bd}, {0x110cd, 0x110cd}, {0x13430, 0x1343f},
                               {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a}, {0xe0001, 0xe007f}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [code](Range range) { return range.first <= code && code <= range.last; });
}

std::string ShowBytes(absl::string_view bytes) {
  std::string shown;
  for (size_t i = 0; i < bytes.size(); ++i)
    absl::StrAppend(&shown, "\\x", absl::Hex(Byte(bytes, i), absl::kZeroPad2));
  return shown;
}

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
    const absl::string_view character = text.substr(0, std::max<size_t>(bytes, 1));
    const bool plain = bytes > 0 && !IsControl(CodePoint(character));
    const std::string shown = plain ? std::string(character) : ShowBytes(character);
    if (out.size() + shown.size() > max_bytes) break;
    out += shown;
    text.remove_prefix(character.size());
  }
  return out;
}

}  // namespace divvy::wire
