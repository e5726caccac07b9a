#include "python/native/forks.h"

#include <pthread.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "base/exit_codes.h"
#include "python/native/job.h"
#include "python/native/step_scope.h"
#include "python/native/thread_states.h"

namespace divvy::python {
namespace {

// The signals that Termination (base/termination.h) handles.
constexpr int kHandled[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};

KeptSignals* kept_signals = nullptr;
thread_local sigset_t mask_before_fork;

// Blocks the signals while the child still has Divvy's handlers. A parent often signals its child
// as soon as fork has returned.
void BeforeFork() {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : kHandled) sigaddset(&handled, number);
  pthread_sigmask(SIG_BLOCK, &handled, &mask_before_fork);
}

void AfterForkInParent() { pthread_sigmask(SIG_SETMASK, &mask_before_fork, nullptr); }

// On the thread that forked.
void AfterForkInChild() {
  ProgramScope::Forget();
  StepScope::Forget();
  ForgetThreadStates();
  KeptSignals::PutBackInChild();
  pthread_sigmask(SIG_SETMASK, &mask_before_fork, nullptr);
}

}  // namespace

void LeaveJobInForks() { pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild); }

KeptSignals::KeptSignals() {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGXFSZ})
    sigaction(number, nullptr, &kept_[number]);
  kept_signals = this;
}

KeptSignals::~KeptSignals() {
  kept_signals = nullptr;
  for (const auto& [number, action] : kept_) sigaction(number, &action, nullptr);
}

void KeptSignals::PutBackInChild() {
  if (kept_signals == nullptr) return;
  const auto& kept = kept_signals->kept_;
  // Python has one handler for all signals, and SIGINT usually had it when divvy.run began.
  const auto pythons = kept.at(SIGINT).sa_handler;
  for (const int number : kHandled) {
    struct sigaction now = {};
    sigaction(number, nullptr, &now);
    if (now.sa_handler == SIG_DFL || now.sa_handler == pythons) continue;
    sigaction(number, &kept.at(number), nullptr);
  }
}

ForkGuard::ForkGuard(absl::string_view what) : process_(getpid()), what_(what) {}

void ForkGuard::EndChild(absl::string_view raised) const {
  if (getpid() == process_) return;
  const std::string line = absl::StrCat(
      "divvy: process ", getpid(), " was forked by ", what_, " and ",
      raised.empty() ? "returned from it" : "raised in it", ". It has no part in the job and ends",
      raised.empty() ? "" : ": ", raised, ". Let such a process end by os._exit.\n");
  // No lock: the thread that held it may not exist in this process.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  _exit(exit_codes::kInternal);
}

}  // namespace divvy::python
