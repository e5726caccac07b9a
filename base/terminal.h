// Standard error as a person sees it.
#ifndef DIVVY_BASE_TERMINAL_H_
#define DIVVY_BASE_TERMINAL_H_

#include "absl/strings/string_view.h"

namespace divvy {

// What kind of place standard error is.
struct Terminal {
  bool interactive = false;  // a terminal that understands control codes (TERM is not "dumb")
  bool color = false;        // interactive, and NO_COLOR is not set, or empty
  int width = 80;            // columns
};
Terminal StandardErrorTerminal();

// Writes `text` to standard error in one piece. Thread-safe.
void WriteStandardError(absl::string_view text);

}  // namespace divvy

#endif  // DIVVY_BASE_TERMINAL_H_
