// libsvm text: a line for each example, "label [qid:n] id:value id:value ... # comment".
#ifndef DIVVY_FORMATS_LIBSVM_H_
#define DIVVY_FORMATS_LIBSVM_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace divvy {

struct LibsvmRow {
  float label = 0;
  // As written (usually from 1), in the order written.
  std::vector<int64_t> ids;
  // As many.
  std::vector<float> values;
};

// Reads one line (without its end) into `row`, whose memory is used again. False: a blank line or a
// comment alone. Fields are parted by spaces and tabs. "qid:n" (a ranking group) may stand behind
// the label; it is checked and dropped. Pure. DataLoss: a label or value that is no finite number,
// an id that is negative or no integer, an id that occurs twice in the line, a field without a
// colon.
absl::StatusOr<bool> ReadLibsvmLine(absl::string_view line, LibsvmRow& row);

// Whether it is a line of which ReadLibsvmLine says false: for those who count lines without
// reading them. Pure.
bool IsBlankLibsvmLine(absl::string_view line);

}  // namespace divvy

#endif  // DIVVY_FORMATS_LIBSVM_H_
