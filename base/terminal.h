// Standard error as a person sees it.
#ifndef DIVVY_BASE_TERMINAL_H_
#define DIVVY_BASE_TERMINAL_H_

#include "absl/strings/string_view.h"

namespace divvy {

// What kind of place standard error is, when it is asked. Thread-safe; does not block.
struct Terminal {
  // A terminal that understands control codes (TERM is not "dumb").
  bool interactive = false;
  // interactive, and NO_COLOR is not set, or empty
  bool color = false;
  // columns
  int width = 80;
};
Terminal StandardErrorTerminal();

// Writes `text` to standard error in one piece, as it is: no line end is added. Thread-safe. Blocks
// for as long as the write takes; an error goes unseen.
void WriteStandardError(absl::string_view text);

}  // namespace divvy

#endif  // DIVVY_BASE_TERMINAL_H_
