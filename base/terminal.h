// The properties of standard error, for output that people watch.
#ifndef DIVVY_BASE_TERMINAL_H_
#define DIVVY_BASE_TERMINAL_H_

#include "absl/strings/string_view.h"

namespace divvy {

// The kind of standard error at the time of the call. Thread-safe; does not block.
struct Terminal {
  // A terminal that understands control codes (TERM is not "dumb").
  bool interactive = false;
  // Whether to use colors: interactive, and NO_COLOR is unset or empty.
  bool color = false;
  // In columns.
  int width = 80;
};
Terminal StandardErrorTerminal();

// Writes `text` to standard error as it is, in one piece and without an added line end.
// Thread-safe. Blocks until it is written; errors are ignored.
void WriteStandardError(absl::string_view text);

}  // namespace divvy

#endif  // DIVVY_BASE_TERMINAL_H_
