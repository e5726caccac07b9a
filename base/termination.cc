#include "base/termination.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/log.h"

namespace divvy {
namespace {

sigset_t EndingSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

Termination::Termination() {
  const sigset_t set = EndingSignals();
  DIVVY_CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signal(SIGPIPE, SIG_IGN);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  DIVVY_CHECK(signals_ >= 0 && wake_ >= 0);
}

Termination::~Termination() {
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
    poll(fds, 2, timeout == absl::InfiniteDuration() ? -1 : static_cast<int>(absl::ToInt64Milliseconds(left) + 1));
  }
}

bool Termination::TakeSignal(Event& event) {
  signalfd_siginfo info;
  if (read(signals_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return false;
  event.signal = static_cast<int>(info.ssi_signo);
  event.exit_code = 128 + event.signal;
  return true;
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

void Termination::Request(int exit_code, std::string why) {
  MutexLock lock(mu_);
  if (requested_) return;
  requested_ = true;
  request_ = {0, exit_code, std::move(why)};
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof(one));
}

void Termination::LetSignalsKill() {
  const sigset_t set = EndingSignals();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace divvy
