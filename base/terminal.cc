#include "base/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace divvy {

Terminal StandardErrorTerminal() {
  Terminal terminal;
  const char* const term = std::getenv("TERM");
  terminal.interactive =
      isatty(STDERR_FILENO) != 0 && term != nullptr && absl::string_view(term) != "dumb";
  const char* const no_color = std::getenv("NO_COLOR");
  // An empty NO_COLOR does not count (no-color.org).
  terminal.color = terminal.interactive && (no_color == nullptr || *no_color == 0);
  winsize size{};
  if (terminal.interactive && ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    terminal.width = size.ws_col;
  return terminal;
}

void WriteStandardError(absl::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace divvy
