// Whether text is UTF-8.
#ifndef DIVVY_FORMATS_UTF8_H_
#define DIVVY_FORMATS_UTF8_H_

#include "absl/strings/string_view.h"

namespace divvy {

// Whether `text` is UTF-8 as RFC 3629 has it: without surrogates, numbers above U+10FFFF, and
// longer forms than needed. A zero byte is fine. Pure.
bool IsUtf8(absl::string_view text);

}  // namespace divvy

#endif  // DIVVY_FORMATS_UTF8_H_
