#include "formats/text.h"

#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace divvy {
namespace {

constexpr absl::string_view kByteOrderMark = "\xEF\xBB\xBF";

absl::Status NotANumber(absl::string_view text, absl::string_view wanted) {
  return absl::DataLossError(absl::StrCat(QuoteForMessage(text), " is not ", wanted));
}

// Abseil's parsers skip spaces around a number.
bool HasOuterSpace(absl::string_view text) {
  return !text.empty() && (absl::ascii_isspace(static_cast<unsigned char>(text.front())) ||
                           absl::ascii_isspace(static_cast<unsigned char>(text.back())));
}

// Whether a number is out of range. Abseil's parsers return infinity for such a number. A text that
// means infinity has a letter i ("inf", "infinity"), and a number has none.
template <typename T>
bool Overflowed(absl::string_view text, T value) {
  return std::isinf(value) && text.find_first_of("iI") == absl::string_view::npos;
}

}  // namespace

bool TakeLine(absl::string_view text, TextPosition& at, absl::string_view* line) {
  if (at.offset >= text.size()) return false;
  const size_t end = text.find('\n', at.offset);
  *line = text.substr(at.offset, end == absl::string_view::npos ? end : end - at.offset);
  at.offset = end == absl::string_view::npos ? text.size() : end + 1;
  ++at.line;
  if (!line->empty() && line->back() == '\r') line->remove_suffix(1);
  return true;
}

TextPosition StartOfText(absl::string_view text) {
  return {absl::StartsWith(text, kByteOrderMark) ? kByteOrderMark.size() : 0, 1};
}

absl::StatusOr<int64_t> ParseInt64(absl::string_view text) {
  int64_t value = 0;
  if (HasOuterSpace(text) || !absl::SimpleAtoi(text, &value))
    return NotANumber(text, "an integer of 64 bits");
  return value;
}

absl::StatusOr<float> ParseFloat(absl::string_view text) {
  float value = 0;
  if (HasOuterSpace(text) || !absl::SimpleAtof(text, &value) || Overflowed(text, value))
    return NotANumber(text, "a float32 number");
  return value;
}

absl::StatusOr<double> ParseDouble(absl::string_view text) {
  double value = 0;
  if (HasOuterSpace(text) || !absl::SimpleAtod(text, &value) || Overflowed(text, value))
    return NotANumber(text, "a float64 number");
  return value;
}

absl::StatusOr<float> ParseFiniteFloat(absl::string_view text) {
  ASSIGN_OR_RETURN(const float value, ParseFloat(text));
  if (!std::isfinite(value)) return NotANumber(text, "a finite number");
  return value;
}

std::string QuoteForMessage(absl::string_view text) {
  constexpr size_t kShown = 40;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kShown)),
                      text.size() > kShown ? "..." : "", "\"");
}

}  // namespace divvy
