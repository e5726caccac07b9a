// CSV (RFC 4180), one record at a time.
//
//   record    = field *( "," field ) ( CRLF / LF / end of text )
//   field     = *( any byte but comma, quote, CR before LF, LF )  /  quote *( any byte but quote /
//             quote quote ) quote
//
// A field in quotes may hold commas, line ends and doubled quotes. Lines with nothing in them are
// passed over. Another separator takes the comma's place.
#ifndef DIVVY_FORMATS_CSV_H_
#define DIVVY_FORMATS_CSV_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "formats/text.h"

namespace divvy {

// A field takes tens of bytes of memory, and one of a file.
constexpr size_t kMaxCsvFields = size_t{1} << 20;

struct CsvRecord {
  int64_t line = 0;                 // where it begins
  std::vector<std::string> fields;  // at least one
};

// Reads the record at `at` into `record`, whose memory is used again, and moves `at` behind it.
// False: nothing is left. Pure. DataLoss, with the line: a quote inside a field without quotes,
// anything but a separator or an end behind a closing quote, or a quote that is never closed, more
// than kMaxCsvFields fields. `at` is then behind the line where the record began, so a caller may
// go on. REQUIRES: `separator` is no quote and no line end.
absl::StatusOr<bool> ReadCsvRecord(absl::string_view text, TextPosition& at, CsvRecord& record,
                                   char separator = ',');

}  // namespace divvy

#endif  // DIVVY_FORMATS_CSV_H_
