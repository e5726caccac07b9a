#include "tools/ctl/top/screen.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace divvy::top {
namespace {

// The second screen, no cursor, and no new line at the end of a full one; and back.
constexpr absl::string_view kEnter = "\x1b[?1049h\x1b[?25l\x1b[?7l",
                            kLeave = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l";
constexpr absl::string_view kHome = "\x1b[H", kRestOfLine = "\x1b[K", kRestOfScreen = "\x1b[J";

constexpr int kReported[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGWINCH};
constexpr int kFatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};

// What signal handlers use. They call nothing that is not safe in a handler: write, tcsetattr and
// raise are (POSIX, 2.4.3).
termios g_before;
std::atomic<bool> g_entered{false};
int g_pipe[2] = {-1, -1};

void Write(absl::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(STDOUT_FILENO, text.data(), text.size());
    if (written < 0 && errno != EINTR) return;
    text.remove_prefix(static_cast<size_t>(std::max<ssize_t>(written, 0)));
  }
}

void Leave() {
  if (!g_entered.exchange(false)) return;
  Write(kLeave);
  tcsetattr(STDIN_FILENO, TCSAFLUSH, &g_before);
}

void Enter() {
  termios raw = g_before;
  // Ctrl-C and Ctrl-Z stay signals.
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  raw.c_cc[VMIN] = 0;
  raw.c_cc[VTIME] = 0;
  g_entered = true;
  tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
  Write(kEnter);
}

void Report(int signal) {
  const int error = errno;
  const char byte = static_cast<char>(signal);
  [[maybe_unused]] const ssize_t written = write(g_pipe[1], &byte, 1);  // a full pipe wakes as well
  errno = error;
}

// The handler is reset before it runs, so the signal kills when it is raised again.
void Die(int signal) {
  Leave();
  raise(signal);
}

void Handle(int signal, void (*handler)(int), int flags) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = flags;
  sigemptyset(&action.sa_mask);
  sigaction(signal, &action, nullptr);
}

// Stops as other programs do at Ctrl-Z, and draws again once it is continued. A process that no
// shell could continue is not stopped.
void Suspend() {
  Leave();
  Handle(SIGTSTP, SIG_DFL, 0);
  raise(SIGTSTP);
  Handle(SIGTSTP, Report, SA_RESTART);
  Enter();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Screen>> Screen::Open() {
  const char* const term = std::getenv("TERM");
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0 || term == nullptr ||
      absl::string_view(term) == "dumb" || tcgetattr(STDIN_FILENO, &g_before) != 0)
    return absl::FailedPreconditionError("not a terminal that a screen can be drawn on");
  if (pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
    return absl::ResourceExhaustedError("cannot make a pipe: too many open files");
  static const int registered = std::atexit(Leave);
  if (registered != 0) return absl::ResourceExhaustedError("cannot register an exit handler");
  for (const int signal : kReported) Handle(signal, Report, SA_RESTART);
  for (const int signal : kFatal) Handle(signal, Die, SA_RESETHAND | SA_NODEFER);
  Enter();
  return std::unique_ptr<Screen>(new Screen);
}

Screen::~Screen() {
  Leave();
  for (const int signal : kReported) Handle(signal, SIG_DFL, 0);
  for (const int signal : kFatal) Handle(signal, SIG_DFL, 0);
  for (int& end : g_pipe) {
    close(end);
    end = -1;
  }
}

Screen::Size Screen::size() const {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0)
    return Size();
  return {size.ws_col, size.ws_row};
}

Screen::Event Screen::Wait(absl::Duration timeout) {
  Event event;
  pollfd waited[] = {{STDIN_FILENO, POLLIN, 0}, {g_pipe[0], POLLIN, 0}};
  const auto millis = absl::ToInt64Milliseconds(absl::Ceil(timeout, absl::Milliseconds(1)));
  if (poll(waited, 2, static_cast<int>(std::clamp<int64_t>(millis, 0, 60'000))) <= 0) return event;
  char buffer[256];
  if (waited[1].revents != 0) {
    const ssize_t got = read(g_pipe[0], buffer, sizeof buffer);
    for (ssize_t i = 0; i < got; ++i) {
      if (buffer[i] == SIGTSTP) Suspend();
      // After a SIGSTOP, the shell has set the terminal for itself.
      if (buffer[i] == SIGCONT) Enter();
      if (buffer[i] == SIGINT || buffer[i] == SIGTERM || buffer[i] == SIGHUP ||
          buffer[i] == SIGQUIT)
        event.signal = buffer[i];
    }
  }
  if (waited[0].revents != 0) {
    const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
    if (got > 0) event.bytes.assign(buffer, static_cast<size_t>(got));
    event.is_closed = got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN);
  }
  return event;
}

void Screen::Wake() { Report(0); }

void Screen::Show(const std::vector<Line>& lines) {
  const char* const no_color = std::getenv("NO_COLOR");
  // An empty NO_COLOR does not count (no-color.org).
  const absl::string_view alarm = no_color == nullptr || *no_color == 0 ? "\x1b[31m" : "";
  std::string text(kHome);
  for (size_t i = 0; i < lines.size(); ++i) {
    const Line& line = lines[i];
    const absl::string_view style = line.kind == Line::Kind::kHeading    ? "\x1b[1m"
                                    : line.kind == Line::Kind::kSelected ? "\x1b[7m"
                                    : line.kind == Line::Kind::kAlarm    ? alarm
                                                                         : "";
    // Erased before it is written: after a full line the cursor stands on its last column.
    absl::StrAppend(&text, i == 0 ? "" : "\r\n",
                    i + 1 == lines.size() ? kRestOfScreen : kRestOfLine, style, line.text,
                    style.empty() ? "" : "\x1b[0m");
  }
  if (lines.empty()) absl::StrAppend(&text, kRestOfScreen);
  Write(text);
}

}  // namespace divvy::top
