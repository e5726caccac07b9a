// The status of a task as a page for people.
#ifndef DIVVY_RPC_STATUS_PAGE_H_
#define DIVVY_RPC_STATUS_PAGE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/recent_log.h"
#include "proto/divvy.pb.h"
#include "rpc/status_history.h"

namespace divvy {

// What the page shows besides the status.
struct PageContext {
  bool serving = true;
  // Wall time.
  absl::Time now = {};
  std::vector<StatusHistory::Picture> pictures = {};
  // The oldest first.
  std::vector<LoggedEntry> warnings = {};
};

// HTML without scripts. All text from outside is escaped: a name may hold markup. A coordinator's
// page has a row for each task of the job. Pure.
std::string HtmlOf(const v1::TaskStatus& status, const PageContext& context);

}  // namespace divvy

#endif  // DIVVY_RPC_STATUS_PAGE_H_
