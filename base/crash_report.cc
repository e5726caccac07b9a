#include "base/crash_report.h"

#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "absl/debugging/symbolize.h"
#include "base/sanitizer.h"

namespace divvy {
namespace {

constexpr int kMaxFrames = 64;

thread_local const char* what = nullptr;
thread_local const char* name = nullptr;

void Write(const char* text) {
  if (write(STDERR_FILENO, text, strlen(text)) < 0) return;  // nothing else can be done
}

void WriteFrame(void* address) {
  char number[32], function[512];
  std::snprintf(number, sizeof number, "    @ %p  ", address);
  Write(number);
  Write(absl::Symbolize(address, function, sizeof function) ? function : "(unknown)");
  Write("\n");
}

// Walks the stack by the tables for exceptions. Abseil's own handler follows frame pointers, which
// optimised code does not keep.
void WriteStack() {
  void* frames[kMaxFrames];
  const int count = backtrace(frames, kMaxFrames);
  // Skips this function and the handler.
  for (int i = 2; i < count; ++i) WriteFrame(frames[i]);
}

// SA_RESETHAND has removed this handler when it runs. So the same fault kills the process after the
// handler returns, and a fault within the handler kills it at once.
[[maybe_unused]] void Report(int signal) {
  static std::atomic<bool> reported{false};
  if (!reported.exchange(true)) {
    const char* const abbreviation = sigabbrev_np(signal);
    for (const char* part : {"*** SIG", abbreviation == nullptr ? "?" : abbreviation, " in "})
      Write(part);
    if (name == nullptr) {
      Write("a thread that runs no step");
    } else {
      for (const char* part : {what, " \"", name, "\""}) Write(part);
    }
    Write(":\n");
    WriteStack();
  }
  ::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

void ReportCrashes([[maybe_unused]] const char* program) {
#ifndef DIVVY_SANITIZER
  absl::InitializeSymbolizer(program);
  void* frame = nullptr;
  // The first call loads a library, which a signal handler must not do.
  backtrace(&frame, 1);
  struct sigaction action = {};
  action.sa_handler = Report;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT})
    sigaction(signal, &action, nullptr);
#endif
}

CrashNote::CrashNote(const char* what_now, const char* name_now)
    : what_before_(what), name_before_(name) {
  what = what_now;
  name = name_now;
}

CrashNote::~CrashNote() {
  what = what_before_;
  name = name_before_;
}

}  // namespace divvy
