// Lines of text, and numbers in them: what the text formats share.
#ifndef DIVVY_FORMATS_TEXT_H_
#define DIVVY_FORMATS_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// A place in a text: enough to go on from there later.
struct TextPosition {
  size_t offset = 0;  // of the next byte
  int64_t line = 1;   // of that byte, for messages
};

// Takes the next line, without its end (LF or CRLF), from `text` at `at`, and moves `at` behind it.
// False: nothing is left. A last line needs no end.
bool TakeLine(absl::string_view text, TextPosition& at, absl::string_view* line);

// The start of `text`, behind a UTF-8 byte order mark if it has one.
TextPosition StartOfText(absl::string_view text);

// Numbers in decimal, with nothing around them. DataLoss: anything else, or out of the type's
// range; the message quotes (the head of) the text. Floats may be written nan or inf; a finite
// number too large for its type is refused, one too small is rounded to zero.
absl::StatusOr<int64_t> ParseInt64(absl::string_view text);
absl::StatusOr<float> ParseFloat(absl::string_view text);
absl::StatusOr<double> ParseDouble(absl::string_view text);
// Neither nan nor inf: for what a model learns from, where one such number spoils every parameter
// that it reaches.
absl::StatusOr<float> ParseFiniteFloat(absl::string_view text);

// `text` as a message shows it: quoted, escaped, and cut after 40 bytes.
std::string QuoteForMessage(absl::string_view text);

}  // namespace divvy

#endif  // DIVVY_FORMATS_TEXT_H_
