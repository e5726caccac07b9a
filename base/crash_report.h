// What a process says on standard error when it crashes.
#ifndef DIVVY_BASE_CRASH_REPORT_H_
#define DIVVY_BASE_CRASH_REPORT_H_

namespace divvy {

// From now on SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP and SIGABRT print which signal came, what
// the thread was at (CrashNote) and its stack, then kill the process as before. The other signals
// are left alone. Does nothing where a sanitizer reports crashes itself. To be called first thing
// in main, once.
void ReportCrashes(const char* program);

// What this thread does for as long as the note lives, for the report of a crash. Notes nest: the
// newest is told.
class CrashNote {
 public:
  // `what`: "step"; `name`: of it. REQUIRES: both outlive the note.
  CrashNote(const char* what, const char* name);
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;

 private:
  const char* const what_before_;
  const char* const name_before_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_CRASH_REPORT_H_
