// What the coordinator knows and says of dynamic tables.
#ifndef DIVVY_COORDINATOR_CORE_TABLE_REPORTS_H_
#define DIVVY_COORDINATOR_CORE_TABLE_REPORTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "coordinator/core/coordinator_snapshot.h"
#include "coordinator/core/server_set.h"
#include "protocol/messages.h"
#include "variables/layout.h"
#include "variables/table_options.h"

namespace divvy {

// All are pure.

// The tables of the layout in the order of their ids, each with the sum over its parts as the
// servers last told. A part that a server does not have by the layout does not count.
std::vector<CoordinatorSnapshot::Table> TablesNow(const Layout& layout, const ServerSet& servers);

// ResourceExhausted: a part has refused a key, and its table's `full` is kFail. The message names
// the table, the limit that it met, and the fix. `told`: what `ps` told in answer to a Sync; parts
// that do not lie there by the layout do not count.
absl::Status CheckRoom(const Layout& layout, int ps, absl::Span<const SyncReply::Table> told);

// The options that differ, for a log line, such as "max_rows 0 -> 100, eviction EvictNever ->
// EvictLeastUsed". Empty: none does.
std::string DescribeChange(const TableOptions& before, const TableOptions& now);

}  // namespace divvy

#endif  // DIVVY_COORDINATOR_CORE_TABLE_REPORTS_H_
