// The log, for people: it tells transitions, not rates (metrics tell those). Nothing that happens
// in every step is logged at INFO.
//
//   DIVVY_LOG(WARNING) << "worker 3 has not answered for " << silence
//                      << "; it counts as lost after " << timeout;
//
// By default each entry is one line on stderr. It begins with severity, date, time, thread and
// source line:
//
//   W1121 04:15:02.120033 8121 suspicion.cc:71] worker 3 has not answered for 5s; it counts as ...
#ifndef DIVVY_BASE_LOG_H_
#define DIVVY_BASE_LOG_H_

#include <functional>
#include <map>
#include <sstream>
#include <string>

#include "absl/strings/string_view.h"

namespace divvy {

enum class Severity { kInfo, kWarning, kError };

struct LogEntry {
  Severity severity = Severity::kInfo;
  // As the compiler names it.
  const char* file = "";
  int line = 0;
  std::string text;  // may have several lines
};

enum class LogFormat {
  // The line shown at the head of this file.
  kText,
  // One JSON object on each line: ts (RFC 3339, UTC), sev, thread, file, line, the fields of the
  // context, msg.
  kJson,
};

struct LogOptions {
  LogFormat format = LogFormat::kText;
  // Entries of a lower severity are not written.
  Severity least = Severity::kInfo;
  // Fields such as role and task. Each becomes a field in JSON; the text format leaves them out.
  std::map<std::string, std::string> context;
};

// Everything below is thread-safe, and blocks only for the write to stderr.

// Sets how entries are written from now on. A process calls it once, at start.
void SetLogOptions(LogOptions options);

// Passes entries to `sink` instead of stderr, whatever the options say. Returns the former sink.
// nullptr means stderr, as the argument and as the result. The sink is called without a lock,
// possibly from several threads at once.
using LogSink = std::function<void(const LogEntry&)>;
LogSink SetLogSink(LogSink sink);

void Log(const LogEntry& entry);

namespace internal {

// Collects one entry and logs it when the statement ends.
class LogMessage {
 public:
  LogMessage(Severity severity, const char* file, int line) : entry_{severity, file, line, ""} {}
  ~LogMessage();
  std::ostream& stream() { return stream_; }

 private:
  LogEntry entry_;
  std::ostringstream stream_;
};

[[noreturn]] void CheckFailed(const char* condition, const char* file, int line);

}  // namespace internal
}  // namespace divvy

#define DIVVY_SEVERITY_INFO ::divvy::Severity::kInfo
#define DIVVY_SEVERITY_WARNING ::divvy::Severity::kWarning
#define DIVVY_SEVERITY_ERROR ::divvy::Severity::kError

// A stream for one entry; the severity is INFO, WARNING or ERROR.
#define DIVVY_LOG(severity) \
  ::divvy::internal::LogMessage(DIVVY_SEVERITY_##severity, __FILE__, __LINE__).stream()

// Prints the condition and aborts the process if it does not hold. Use it for programming errors
// before serving begins, and in tests. Return a Status for an error that can come from outside, and
// kInternal for a broken invariant of a running role.
#define DIVVY_CHECK(condition)                                                        \
  do {                                                                                \
    if (!(condition)) ::divvy::internal::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)

#endif  // DIVVY_BASE_LOG_H_
