// A report on standard error when the process crashes.
#ifndef DIVVY_BASE_CRASH_REPORT_H_
#define DIVVY_BASE_CRASH_REPORT_H_

namespace divvy {

// Installs handlers for SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP and SIGABRT. A handler prints the
// signal, the thread's innermost CrashNote and its stack, and then lets the signal kill the
// process. Does nothing in a sanitizer build, because sanitizers report crashes themselves. Call it
// once, first thing in main. `program` is argv[0].
void ReportCrashes(const char* program);

// Describes the present work of this thread for crash reports, as long as the note lives. Notes
// nest; a report shows the newest one.
class CrashNote {
 public:
  // `what` is the kind of work ("step") and `name` its name. REQUIRES: both outlive the note.
  CrashNote(const char* what, const char* name);
  ~CrashNote();
  CrashNote(const CrashNote&) = delete;

 private:
  const char* const what_before_;
  const char* const name_before_;
};

}  // namespace divvy

#endif  // DIVVY_BASE_CRASH_REPORT_H_
