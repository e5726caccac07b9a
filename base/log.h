// What a person may want to read while the service runs: transitions, not rates (those are
// metrics), nothing per step at INFO.
//
//   DIVVY_LOG(WARNING) << "worker 3 has not answered for " << silence << "; it counts as lost after
//   " << timeout;
//
// By default each entry is one line on stderr that begins with severity, date, time, thread and
// place:
//
//   W1121 04:15:02.120033 8121 suspicion.cc:71] worker 3 has not answered for 5s; it counts as lost
//   after 30s
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
  const char* file = "";  // as the compiler names it
  int line = 0;
  std::string text;  // may hold several lines
};

enum class LogFormat {
  // The line shown above.
  kText,
  // One JSON object a line: ts (RFC 3339, UTC), sev, thread, file, line, the context's fields, msg.
  kJson,
};

struct LogOptions {
  LogFormat format = LogFormat::kText;
  // Less than this is not written.
  Severity least = Severity::kInfo;
  // role, task, ...: a field each in JSON; the text line leaves them out
  std::map<std::string, std::string> context;
};

// Everything below is thread-safe and blocks no longer than a write to stderr takes.

// How entries are written from now on. A process calls it once, at start.
void SetLogOptions(LogOptions options);

// Gives entries to `sink` instead of stderr, whatever the options say, and returns the sink before;
// nullptr goes back to stderr. The sink is called without a lock, perhaps from several threads at
// once.
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

// Prints the condition and aborts if it does not hold. For the programmer's mistakes before serving
// begins, and in tests; what can come from outside is answered with a Status, and a broken
// invariant of a running role with kInternal.
#define DIVVY_CHECK(condition)                                                        \
  do {                                                                                \
    if (!(condition)) ::divvy::internal::CheckFailed(#condition, __FILE__, __LINE__); \
  } while (false)

#endif  // DIVVY_BASE_LOG_H_
