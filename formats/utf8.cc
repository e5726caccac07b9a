#include "formats/utf8.h"

#include <cstddef>
#include <cstdint>

namespace divvy {
namespace {

// The bytes that follow the first one, and the smallest number that needs so many.
struct Form {
  size_t more = 0;
  uint32_t smallest = 0;
};

// False: no character begins with this byte.
bool FormOf(uint8_t first, Form& form) {
  if (first < 0x80) {
    form = {0, 0};
  } else if (first >= 0xC0 && first < 0xE0) {
    form = {1, 0x80};
  } else if (first >= 0xE0 && first < 0xF0) {
    form = {2, 0x800};
  } else if (first >= 0xF0 && first < 0xF8) {
    form = {3, 0x10000};
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<uint8_t>(text[i++]);
    Form form;
    if (!FormOf(first, form) || text.size() - i < form.more) return false;
    // The first byte has 7, 5, 4 or 3 bits of the number, each other one has 6.
    uint32_t number = form.more == 0 ? first : first & (0x3Fu >> form.more);
    for (size_t end = i + form.more; i < end; ++i) {
      const auto next = static_cast<uint8_t>(text[i]);
      if ((next & 0xC0) != 0x80) return false;
      number = number << 6 | (next & 0x3Fu);
    }
    const bool is_surrogate = number >= 0xD800 && number < 0xE000;
    if (number < form.smallest || number > 0x10FFFF || is_surrogate) return false;
  }
  return true;
}

}  // namespace divvy
