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

// Those that are read by the thread that waits.
sigset_t HeldSignals() {
  sigset_t set = EndingSignals();
  sigaddset(&set, SIGHUP);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

Termination::Termination() {
  const sigset_t set = HeldSignals();
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
  for (;;) {
    if (read(signals_, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) return false;
    if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) break;
    Answer(static_cast<int>(info.ssi_signo));
  }
  event.signal = static_cast<int>(info.ssi_signo);
  event.exit_code = 128 + event.signal;
  return true;
}

void Termination::Answer(int signal) {
  if (signal == SIGHUP) {
    DIVVY_LOG(INFO) << "SIGHUP: nothing to do: certificates are read again every minute, without being asked";
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
