// The last warnings of the process, for its status page.
#ifndef DIVVY_BASE_RECENT_LOG_H_
#define DIVVY_BASE_RECENT_LOG_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/log.h"

namespace divvy {

struct LoggedEntry {
  absl::Time at;
  Severity severity = Severity::kWarning;
  std::string text;
};

// The last 50 entries of severity WARNING and above, the oldest first. Entries that LogOptions or a
// sink keep from stderr are among them. Thread-safe.
std::vector<LoggedEntry> RecentWarnings();

}  // namespace divvy

#endif  // DIVVY_BASE_RECENT_LOG_H_
