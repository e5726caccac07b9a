// `divvyctl table` shows the dynamic tables of a job.
#ifndef DIVVY_TOOLS_CTL_TABLE_H_
#define DIVVY_TOOLS_CTL_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/ctl/status.h"

namespace divvy {

// Each function asks the tasks of `options` at once, blocks at most for twice the timeout, and
// returns the text to print: a table for a terminal, or one JSON object per line.
//
// What a parameter server does not tell is missing in every sum and every answer, so each of them
// has to answer. If the coordinator is among the tasks, it tells how many there are, and servers
// that a resize left over are ignored. Otherwise all tasks that may be parameter servers have to
// answer, and a server whose address is not given is not noticed. Errors:
//   - Unavailable: no parameter server is reachable; or, with its index and the fix, one of them
//     does not answer, is not attached to the coordinator's job, or does not have its tables yet;
//   - NotFound: no such table, with near names; or the job has no tables;
//   - PermissionDenied: the certificate is not an admin's;
//   - InvalidArgument: what the options of a function say.

// One line for each table: rows, memory, and what has become of keys. The most rows are known if
// the coordinator is among the tasks.
absl::StatusOr<std::string> ListTables(const StatusOptions& options);

// One line for each parameter server of a table, and their sum.
absl::StatusOr<std::string> ShowTable(const StatusOptions& options, const std::string& table);

// One line for each key, in their order: how many steps named it, the last minute of the job's time
// in which one did, the norm of the values, and the values. A key without a row says so.
absl::StatusOr<std::string> FindInTable(const StatusOptions& options, const std::string& table,
                                        const std::vector<int64_t>& keys);

// As FindInTable, of the `limit` rows that steps named most often, or whose values have the largest
// Euclidean norm. InvalidArgument: more rows than a server gives at a time.
enum class TopBy : uint8_t { kCount, kNorm };
absl::StatusOr<std::string> TopOfTable(const StatusOptions& options, const std::string& table,
                                       TopBy by, int limit);

// "17" -> 17. InvalidArgument, naming the text and the fix: it is no int64.
absl::StatusOr<std::vector<int64_t>> ParseKeys(const std::vector<std::string>& texts);

// The exit code for a command that ended with this status (docs/operating/operations.md).
int TableExitCode(const absl::Status& status);

}  // namespace divvy

#endif  // DIVVY_TOOLS_CTL_TABLE_H_
