// How the process of a task begins: its command line, and which task it is.
#ifndef DIVVY_TASK_COMMAND_LINE_H_
#define DIVVY_TASK_COMMAND_LINE_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "cluster/role.h"
#include "task/task_server.h"

namespace divvy {

// For main, in this order. Nothing here blocks longer than reading --cluster_file takes.

// First of all: a crash leaves a stack in the log, and a file that grows beyond its limit is an
// error instead of a signal. `argv0`: where the binary is, for the names in the stack.
void BeginProcess(const char* argv0);

struct Binary {
  absl::string_view name;  // "worker", for messages
  // What it is, for --help.
  std::string usage;
  // The text of its flags, for --help.
  std::function<std::string()> help_of_flags;
  // The roles that it plays, first the one that it is for; empty: all.
  std::vector<Role> roles;
};

// Parses the flags. The exit code where the process is to end now: 0 after --help; 64, with a line
// on standard error, for a word that is no flag, since a task takes nothing else, and for a flag
// that none of the binary's roles reads.
std::optional<int> ReadCommandLine(int argc, char** argv, const Binary& binary);

// Which task this process is. InvalidArgument: nothing says it, it is a task of a role that the
// binary does not play, or the cluster has problems. REQUIRES: the binary does not play all roles.
absl::StatusOr<TaskOptions> OwnTask(const Binary& binary);

}  // namespace divvy

#endif  // DIVVY_TASK_COMMAND_LINE_H_
