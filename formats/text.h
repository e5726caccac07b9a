// Lines of text and numbers in text, shared by the text formats.
#ifndef DIVVY_FORMATS_TEXT_H_
#define DIVVY_FORMATS_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

// A position in a text, from which reading can resume later.
struct TextPosition {
  size_t offset = 0;  // of the next byte
  int64_t line = 1;   // of that byte, for messages
};

// Reads the next line from `text` at `at` without its end (LF or CRLF), and moves `at` past it. The
// line borrows the text's memory. Returns false at the end of the text. The last line needs no line
// end.
bool TakeLine(absl::string_view text, TextPosition& at, absl::string_view* line);

// DataLoss, naming the way out, if `text` begins with the byte order mark of UTF-16 or UTF-32.
absl::Status CheckEncoding(absl::string_view text);
// The start of `text`, after a UTF-8 byte order mark if there is one.
TextPosition StartOfText(absl::string_view text);

// Parses a decimal number; nothing may surround it. DataLoss: the text is anything else, or the
// number is out of the type's range; the message quotes the (beginning of the) text. A float may be
// written as nan or inf. A finite number that is too large for the type is refused; one that is too
// small is rounded to zero.
absl::StatusOr<int64_t> ParseInt64(absl::string_view text);
absl::StatusOr<float> ParseFloat(absl::string_view text);
absl::StatusOr<double> ParseDouble(absl::string_view text);
// As above, for loops over many numbers: false instead of an error. Plain notation, without an
// exponent and with up to 19 digits, takes the least time (bench:input).
bool TryParseInt64(absl::string_view text, int64_t* value);
bool TryParseFloat(absl::string_view text, float* value);
bool TryParseDouble(absl::string_view text, double* value);
// As ParseFloat, but nan and inf are DataLoss. For training data, where one such number spoils
// every parameter that it reaches.
absl::StatusOr<float> ParseFiniteFloat(absl::string_view text);

// `text` as it is shown in messages: quoted, escaped, and cut after 40 bytes.
std::string QuoteForMessage(absl::string_view text);

}  // namespace divvy

#endif  // DIVVY_FORMATS_TEXT_H_
