// CSV (RFC 4180), one record at a time.
//
//   record   = field *( separator field ) ( CRLF / LF / end of text )
//   field    = plain / quoted
//   plain    = *( any byte except separator, quote, LF, and CR before LF )
//   quoted   = quote *( any byte except quote / quote quote ) quote
//
// The separator is a comma unless the caller chooses another. A quoted field may hold separators,
// line ends and doubled quotes. Empty lines are skipped.
#ifndef DIVVY_FORMATS_CSV_H_
#define DIVVY_FORMATS_CSV_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "formats/text.h"

namespace divvy {

// The limit on the fields of a record. A field may take one byte in a file but takes tens of bytes
// of memory.
constexpr size_t kMaxCsvFields = size_t{1} << 20;

struct CsvRecord {
  int64_t line = 0;                 // the line in which it begins
  std::vector<std::string> fields;  // at least one
};

// Reads the record at `at` into `record`, whose memory is reused, and moves `at` past it. Returns
// false at the end of the text. Pure.
//
// DataLoss, with the line: a quote inside a plain field, anything but a separator or a line end
// after a closing quote, a quote that is never closed, or more than kMaxCsvFields fields. `at` is
// then after the line in which the record began, so the caller may continue with the next line.
// REQUIRES: `separator` is neither a quote nor a line end.
absl::StatusOr<bool> ReadCsvRecord(absl::string_view text, TextPosition& at, CsvRecord& record,
                                   char separator = ',');

// Reads the record at `at`, if it has no quote and fields.size() fields, and moves `at` past it.
// The fields borrow the text's memory. False: any other record, or the end of the text; `at` is
// unchanged, and ReadCsvRecord tells what it is. Pure. REQUIRES: as ReadCsvRecord; fields is not
// empty.
bool ReadPlainCsvRecord(absl::string_view text, TextPosition& at,
                        absl::Span<absl::string_view> fields, char separator);

// Skips the record at `at`, good or bad, as ReadCsvRecord does. False: the end of the text. Pure.
bool SkipCsvRecord(absl::string_view text, TextPosition& at, CsvRecord& record, char separator);

}  // namespace divvy

#endif  // DIVVY_FORMATS_CSV_H_
