#include "formats/text.h"

#include <cmath>
#include <cstring>

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

bool ParseIntSlowly(absl::string_view text, int64_t* value) {
  return !HasOuterSpace(text) && absl::SimpleAtoi(text, value);
}

constexpr double kPowersOfTen[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                   1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                   1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

// Adds the digits at the front of [p, end) to `sum`, and returns where they end.
const char* TakeDigits(const char* p, const char* end, uint64_t& sum) {
  for (; p != end; ++p) {
    const unsigned digit = static_cast<unsigned char>(*p) - unsigned{'0'};
    if (digit > 9) break;
    sum = 10 * sum + digit;
  }
  return p;
}

// The double that is nearest to a number in plain notation, such as -12.5, if one division of
// doubles gives it: both are exact below 2^53 and up to 10^22, and the quotient is rounded
// correctly (Clinger, "How to read floating point numbers accurately", 1990). `is_exact`: it is the
// number itself. False: the text is anything else.
bool ParsePlain(absl::string_view text, double* value, bool* is_exact) {
  constexpr size_t kMostDigits = 19;  // in 64 bits
  constexpr uint64_t kExactInDouble = uint64_t{1} << 53;
  const char* p = text.data();
  const char* const end = p + text.size();
  const bool is_negative = p != end && *p == '-';
  if (is_negative) ++p;
  if (static_cast<size_t>(end - p) > kMostDigits) return false;
  uint64_t sum = 0;
  const char* const whole_end = TakeDigits(p, end, sum);
  bool has_digits = whole_end != p;
  size_t decimals = 0;
  p = whole_end;
  if (p != end && *p == '.') {
    ++p;
    const char* const decimals_end = TakeDigits(p, end, sum);
    decimals = static_cast<size_t>(decimals_end - p);
    has_digits |= decimals > 0;
    p = decimals_end;
  }
  if (p != end || !has_digits || sum > kExactInDouble) return false;
  *is_exact = decimals == 0;
  const double magnitude =
      decimals == 0 ? static_cast<double>(sum) : static_cast<double>(sum) / kPowersOfTen[decimals];
  *value = is_negative ? -magnitude : magnitude;
  return true;
}

}  // namespace

absl::Status CheckEncoding(absl::string_view text) {
  const absl::string_view four = text.substr(0, 4), two = text.substr(0, 2);
  const bool is_utf32 =
      four == absl::string_view("\xFF\xFE\0\0", 4) || four == absl::string_view("\0\0\xFE\xFF", 4);
  if (!is_utf32 && two != "\xFF\xFE" && two != "\xFE\xFF") return absl::OkStatus();
  const absl::string_view name = is_utf32 ? "UTF-32" : "UTF-16";
  return absl::DataLossError(absl::StrCat(
      "the file is ", name, ": convert it to UTF-8, as with iconv -f ", name, " -t UTF-8"));
}

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

bool TryParseInt64(absl::string_view text, int64_t* value) {
  const bool is_negative = !text.empty() && text[0] == '-';
  const absl::string_view digits = text.substr(is_negative ? 1 : 0);
  constexpr size_t kSafeDigits = 18;  // any number of so many digits fits
  if (!digits.empty() && digits.size() <= kSafeDigits) {
    int64_t sum = 0;
    for (const char c : digits) {
      const unsigned digit = static_cast<unsigned char>(c) - unsigned{'0'};
      if (digit > 9) return ParseIntSlowly(text, value);
      sum = 10 * sum + digit;
    }
    *value = is_negative ? -sum : sum;
    return true;
  }
  return ParseIntSlowly(text, value);
}

bool TryParseFloat(absl::string_view text, float* value) {
  double nearest = 0;
  bool is_exact = false;
  if (ParsePlain(text, &nearest, &is_exact)) {
    // The number lies within half a unit of `nearest`, so both round to the same float, unless
    // `nearest` is the middle between two floats and the number lies on one side of it.
    constexpr uint64_t kBelowFloat = (uint64_t{1} << 29) - 1, kMiddle = uint64_t{1} << 28;
    uint64_t bits;
    std::memcpy(&bits, &nearest, sizeof(bits));
    if (is_exact || (bits & kBelowFloat) != kMiddle) {
      *value = static_cast<float>(nearest);
      return true;
    }
  }
  return !HasOuterSpace(text) && absl::SimpleAtof(text, value) && !Overflowed(text, *value);
}

bool TryParseDouble(absl::string_view text, double* value) {
  bool is_exact = false;
  return ParsePlain(text, value, &is_exact) ||
         (!HasOuterSpace(text) && absl::SimpleAtod(text, value) && !Overflowed(text, *value));
}

absl::StatusOr<int64_t> ParseInt64(absl::string_view text) {
  int64_t value = 0;
  if (!TryParseInt64(text, &value)) return NotANumber(text, "an integer of 64 bits");
  return value;
}

absl::StatusOr<float> ParseFloat(absl::string_view text) {
  float value = 0;
  if (!TryParseFloat(text, &value)) return NotANumber(text, "a float32 number");
  return value;
}

absl::StatusOr<double> ParseDouble(absl::string_view text) {
  double value = 0;
  if (!TryParseDouble(text, &value)) return NotANumber(text, "a float64 number");
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
