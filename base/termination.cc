#include "base/termination.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"

namespace divvy {
namespace {

constexpr int kEnding[] = {SIGTERM, SIGINT};
constexpr int kAsked = 255;  // no signal has that number
constexpr int kTaken[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

// A handler is used and not a signal mask with signalfd. Libraries may start threads before main
// begins (OpenBLAS does), and a mask set later does not reach them. A signal that is delivered to
// such a thread would kill the process.
std::atomic<int> signal_pipe{-1};

void OnSignal(int signal) {
  const int error = errno;
  const unsigned char number = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t written = write(signal_pipe.load(), &number, 1);
  errno = error;
}

}  // namespace

Termination::Termination() {
  int ends[2] = {-1, -1};
  DIVVY_CHECK(pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  signals_ = ends[0];
  signal_pipe = ends[1];
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  DIVVY_CHECK(wake_ >= 0);
  signal(SIGPIPE, SIG_IGN);
  SurviveLargeFiles();
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  sigset_t taken;
  sigemptyset(&taken);
  for (const int number : kTaken) {
    DIVVY_CHECK(sigaction(number, &action, nullptr) == 0);
    sigaddset(&taken, number);
  }
  // The parent process may have blocked them.
  DIVVY_CHECK(pthread_sigmask(SIG_UNBLOCK, &taken, nullptr) == 0);
}

// Ignores signals from here on: the process is ending and has its exit code. If a signal killed it
// now, its parent would see another exit status.
Termination::~Termination() {
  for (const int number : kTaken) {
    struct sigaction now = {};
    // If the handler is gone, LetSignalsKill was called, and its setting stays.
    if (sigaction(number, nullptr, &now) == 0 && now.sa_handler == OnSignal)
      signal(number, SIG_IGN);
  }
  close(signal_pipe.exchange(-1));
  close(signals_);
  close(wake_);
}

std::optional<Termination::Event> Termination::WaitFor(absl::Duration timeout) {
  const absl::Duration until = Clock::Real().Elapsed() + timeout;
  Event event;
  for (;;) {
    if (TakeRequest(event) || TakeSignal(event)) return event;
    const absl::Duration left = until - Clock::Real().Elapsed();
    if (left <= absl::ZeroDuration()) return std::nullopt;
    pollfd fds[] = {{signals_, POLLIN, 0}, {wake_, POLLIN, 0}};
    const absl::Duration at_most = std::min(left, absl::Hours(24));  // poll takes an int
    poll(fds, 2, static_cast<int>(absl::ToInt64Milliseconds(at_most) + 1));
  }
}

bool Termination::TakeSignal(Event& event) {
  unsigned char number = 0;
  for (;;) {
    if (read(signals_, &number, 1) != 1) return false;
    if (number == SIGTERM || number == SIGINT || number == kAsked) break;
    Answer(number);
  }
  event.signal = number == kAsked ? SIGTERM : number;
  event.asked = number == kAsked;
  event.exit_code = 128 + event.signal;
  return true;
}

void Termination::Answer(int signal) {
  if (signal == SIGHUP) {
    DIVVY_LOG(INFO) << "SIGHUP: nothing to do: certificates are reloaded every minute in any case";
    return;
  }
  std::function<std::string()> status;
  {
    MutexLock lock(mu_);
    status = status_;
  }
  if (status) DIVVY_LOG(INFO) << "status: " << status();
}

void Termination::OnStatusAsked(std::function<std::string()> status) {
  MutexLock lock(mu_);
  status_ = std::move(status);
}

bool Termination::TakeRequest(Event& event) {
  MutexLock lock(mu_);
  if (!requested_ || taken_) return false;
  taken_ = true;
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t drained = read(wake_, &count, sizeof(count));
  event = request_;
  return true;
}

void Termination::AskToEnd() { OnSignal(kAsked); }

void Termination::Request(int exit_code, std::string why) {
  MutexLock lock(mu_);
  if (requested_) return;
  requested_ = true;
  request_ = {0, exit_code, false, std::move(why)};
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

void Termination::LetSignalsKill() {
  for (const int number : kEnding) signal(number, SIG_DFL);
}

}  // namespace divvy
