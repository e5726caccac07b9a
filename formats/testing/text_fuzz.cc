// Fuzzes CSV and lines of libsvm with any bytes. Reading must end, and what is accepted must keep
// the readers' promises. The first byte is the separator of CSV.
#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "absl/strings/string_view.h"
#include "base/testing/fuzz.h"
#include "formats/csv.h"
#include "formats/libsvm.h"
#include "formats/text.h"

namespace divvy {
namespace {

void TryCsv(absl::string_view text, char separator) {
  TextPosition at = StartOfText(text);
  CsvRecord record;
  while (true) {
    const size_t before = at.offset;
    TextPosition plain_at = at, skip_at = at;
    std::array<absl::string_view, 3> fields;
    const bool is_plain = ReadPlainCsvRecord(text, plain_at, absl::MakeSpan(fields), separator);
    const bool skipped = SkipCsvRecord(text, skip_at, record, separator);
    const auto read = ReadCsvRecord(text, at, record, separator);
    fuzz::Require(skipped == (!read.ok() || *read) && (!skipped || skip_at.offset == at.offset),
                  "skipped is not read");
    fuzz::Require(!is_plain || (read.ok() && *read && plain_at.offset == at.offset &&
                                std::equal(fields.begin(), fields.end(), record.fields.begin(),
                                           record.fields.end())),
                  "a plain record that is none");
    fuzz::Require(at.offset <= text.size(), "the position leaves the text");
    if (read.ok() && !*read) return;
    fuzz::Require(at.offset > before, "reading does not go on");
    fuzz::Require(!read.ok() || !record.fields.empty(), "a record without a field");
  }
}

void TryLibsvm(absl::string_view text) {
  TextPosition at;
  LibsvmRow row;
  for (absl::string_view line; TakeLine(text, at, &line);) {
    const auto read = ReadLibsvmLine(line, row);
    fuzz::Require(IsBlankLibsvmLine(line) == (read.ok() && !*read),
                  "blank for one and not for the other");
    if (!read.ok() || !*read) continue;
    fuzz::Require(std::isfinite(row.label) && row.ids.size() == row.values.size(),
                  "a row that is none");
    const std::set<int64_t> different(row.ids.begin(), row.ids.end());
    fuzz::Require(
        different.size() == row.ids.size() && (different.empty() || *different.begin() >= 0),
        "an id twice, or below 0");
    for (const float value : row.values)
      fuzz::Require(std::isfinite(value), "a value that is not finite");
  }
}

void Try(absl::string_view bytes) {
  if (bytes.empty()) return;
  const bool may_part = bytes[0] != '"' && bytes[0] != '\n' && bytes[0] != '\r';
  TryCsv(bytes.substr(1), may_part ? bytes[0] : ',');
  TryLibsvm(bytes.substr(1));
  (void)ParseInt64(bytes);
  (void)ParseDouble(bytes);
  (void)ParseFloat(bytes);
  (void)QuoteForMessage(bytes);
}

}  // namespace
}  // namespace divvy

DIVVY_FUZZ(divvy::Try)
