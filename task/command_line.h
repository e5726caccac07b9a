// How the process of a task begins: its command line, and which task it is.
#ifndef DIVVY_TASK_COMMAND_LINE_H_
#define DIVVY_TASK_COMMAND_LINE_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "cluster/role.h"
#include "task/task_server.h"

namespace divvy {

// For main, in this order. Nothing here blocks longer than reading --cluster_file takes.

// First of all: a crash leaves a stack in the log, and a file that grows beyond its limit is an
// error instead of a signal. `argv0`: where the binary is, for the names in the stack.
void BeginProcess(const char* argv0);

// Parses the flags. The exit code where the process is to end now: 0 after --help, which prints
// `usage` and what `help_of_flags` returns; 64, with a line on standard error, for a word that is
// no flag, since a task takes nothing else.
std::optional<int> ReadCommandLine(int argc, char** argv, const std::string& usage,
                                   const std::function<std::string()>& help_of_flags);

// Which task this process is, for a binary that plays these roles alone; the first is the one that
// it is for. InvalidArgument: nothing says it, it is a task of another role, or the cluster has
// problems. `binary` is its name, for messages.
absl::StatusOr<TaskOptions> OwnTask(absl::string_view binary, absl::Span<const Role> roles);

}  // namespace divvy

#endif  // DIVVY_TASK_COMMAND_LINE_H_
