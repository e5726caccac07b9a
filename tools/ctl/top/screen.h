// The terminal of `divvyctl top`: lines, keys and signals.
#ifndef DIVVY_TOOLS_CTL_TOP_SCREEN_H_
#define DIVVY_TOOLS_CTL_TOP_SCREEN_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tools/ctl/top/model.h"

namespace divvy::top {

// Owns the terminal of this process: its second screen, without echo and without a cursor. The
// terminal is as before once the object is gone, also while the process is stopped (Ctrl-Z), and
// after exit() and signals that kill; only SIGKILL leaves it as it is. A process has one at a time.
// For one thread, except Wake.
class Screen {
 public:
  // FailedPrecondition: standard input or output is no terminal, or TERM is "dumb".
  static absl::StatusOr<std::unique_ptr<Screen>> Open();
  ~Screen();
  Screen(const Screen&) = delete;

  struct Size {
    int width = 80, height = 24;
  };
  // The present size. Some terminals do not know theirs: 80 x 24.
  Size size() const;

  struct Event {
    // What was typed.
    std::string bytes;
    // SIGINT, SIGTERM, SIGHUP or SIGQUIT; 0: none.
    int signal = 0;
    // The terminal is gone.
    bool is_closed = false;
  };
  // Blocks until something is typed, a signal comes, the size changes, Wake is called, or the
  // timeout has passed.
  Event Wait(absl::Duration timeout);
  // Makes Wait return. Any thread may call it.
  void Wake();
  // Replaces the content of the terminal.
  void Show(const std::vector<Line>& lines);

 private:
  Screen() = default;
};

}  // namespace divvy::top

#endif  // DIVVY_TOOLS_CTL_TOP_SCREEN_H_
