// libsvm text: one line for each example, "label [qid:n] id:value id:value ... # comment".
#ifndef DIVVY_FORMATS_LIBSVM_H_
#define DIVVY_FORMATS_LIBSVM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

struct LibsvmRow {
  float label = 0;
  // As written, in the same order. Ids usually start at 1.
  std::vector<int64_t> ids;
  // One for each id.
  std::vector<float> values;
};

// Reads one line (without its line end) into `row`, whose memory is reused. Returns false for a
// blank line or a line with only a comment. Fields are separated by spaces and tabs. "qid:n" (a
// ranking group) may follow the label; it is checked and ignored. Pure. DataLoss: a label or value
// is not a finite number, an id is negative or not an integer, an id occurs twice in the line, or a
// field has no colon.
absl::StatusOr<bool> ReadLibsvmLine(absl::string_view line, LibsvmRow& row);

// Whether ReadLibsvmLine returns false for this line, for callers that count lines without reading
// them. Pure.
bool IsBlankLibsvmLine(absl::string_view line);

}  // namespace divvy

#endif  // DIVVY_FORMATS_LIBSVM_H_
