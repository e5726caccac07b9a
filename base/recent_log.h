// The last entries of the process's log, for its status page and for operators.
#ifndef DIVVY_BASE_RECENT_LOG_H_
#define DIVVY_BASE_RECENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/log.h"

namespace divvy {

struct LoggedEntry {
  absl::Time at;
  Severity severity = Severity::kWarning;
  // At most 2,000 bytes, perhaps several lines, perhaps not UTF-8.
  std::string text;
  // The name of the source file, without its folder, and the line.
  std::string file = {};
  int line = 0;
};

// Both are thread-safe. Entries that LogOptions or a sink keep from stderr are among them.

// The last 50 entries of severity WARNING and above, the oldest first.
std::vector<LoggedEntry> RecentWarnings();

// What is kept of the log.
struct RecentLog {
  static constexpr size_t kMostEntries = 1000;
  // Of their texts.
  static constexpr size_t kMostBytes = 256 << 10;
  // The last ones, the oldest first.
  std::vector<LoggedEntry> entries;
  // How many the process has logged.
  int64_t written = 0;
};
// At most the last `most` entries.
RecentLog LastEntries(size_t most = RecentLog::kMostEntries);

}  // namespace divvy

#endif  // DIVVY_BASE_RECENT_LOG_H_
